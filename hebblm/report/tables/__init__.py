"""Tables of a result: rows by column, raw numbers."""
