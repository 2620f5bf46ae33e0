"""Commands: parsing and wiring only."""
