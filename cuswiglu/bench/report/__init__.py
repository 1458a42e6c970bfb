"""Reports: what a record comes to, as figures, tables and plots."""
