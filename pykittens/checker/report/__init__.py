"""The report of a check in all its forms: text, terminal, HTML page, JSON, trace."""
