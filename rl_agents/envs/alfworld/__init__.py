"""ALFWorld: household text games, played by a native engine or by the real TextWorld."""
