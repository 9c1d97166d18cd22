"""PaperSearch: collect the papers that meet a request (StepPO, appendix B)."""
