SELECT _note_progress($1)
