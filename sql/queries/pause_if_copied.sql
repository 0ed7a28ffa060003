SELECT _pause_if_copied($1, $2::xid)
