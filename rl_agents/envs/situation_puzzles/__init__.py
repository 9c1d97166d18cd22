"""SituationPuzzles: find the story behind a strange scene with yes-or-no questions (T3, appendix C.1; AR-Bench)."""
