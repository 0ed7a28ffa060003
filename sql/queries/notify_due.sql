SELECT _mail_due(now())
