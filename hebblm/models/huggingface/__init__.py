"""Any causal language model of ``transformers`` as a base; nothing here names an architecture."""
