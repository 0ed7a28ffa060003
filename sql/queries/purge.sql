SELECT more, _forget_deliverers() FROM _purge($1, $2)
