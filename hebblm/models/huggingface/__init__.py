"""Causal language models of ``transformers`` as bases; nothing here names an architecture."""
