"""PreferenceEstimation: infer a hidden preference vector from pairwise questions (T3, appendix C.1)."""
