"""How MbPA's descent is followed: exactly, or on a few hundred classes."""
