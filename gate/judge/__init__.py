"""Judge several targets, one pytest run each."""
