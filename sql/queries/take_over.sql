SELECT _take_over($1)
