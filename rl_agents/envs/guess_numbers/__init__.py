"""GuessNumbers: find a secret code from feedback on guesses (T3, appendix C.1)."""
