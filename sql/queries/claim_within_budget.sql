SELECT c.* FROM _claim_within_budget($1, $2, $3) c
