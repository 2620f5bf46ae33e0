"""Cost of adaptation, held against this project's goals and against the least that it could be."""
