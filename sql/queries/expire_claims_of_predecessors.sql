SELECT _expire_previous_claims($1)
