"""The report on a reproduction: one offline page, and a Markdown record."""
