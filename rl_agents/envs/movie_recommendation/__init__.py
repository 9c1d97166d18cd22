"""MovieRecommendation: learn a hidden preference by asking, then recommend an unseen movie (T3, appendix C.1)."""
