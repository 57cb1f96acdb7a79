"""The queue's tables: one function per named statement of `sql/`, and the few transactions made of several."""
