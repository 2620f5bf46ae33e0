"""Other people's tools on adapted models: generation of ``transformers``, lm-evaluation-harness."""
