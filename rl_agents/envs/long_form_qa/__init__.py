"""Long-form question answering: questions over a document set, answers of several sentences (PRS, long form)."""
