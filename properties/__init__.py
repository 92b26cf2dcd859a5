"""The contract as Hypothesis properties, one module for each family of clauses."""
