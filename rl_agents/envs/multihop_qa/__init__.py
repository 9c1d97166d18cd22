"""Multi-hop question answering with a search tool (StepPO, appendix B; PRS and VSPO, short-form QA)."""
