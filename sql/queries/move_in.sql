SELECT _move_in($1, $2::xid)
