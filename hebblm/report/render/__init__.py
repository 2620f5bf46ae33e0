"""Tables and plots as people read them: console, Markdown, HTML, CSV, notebook."""
