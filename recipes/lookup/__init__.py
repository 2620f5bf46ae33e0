"""Next words on a person's own texts: suggestions compared with a lookup of what followed the last
two words.
"""
