-- Uses: marks, marking, writing, ending.
-- ARGV[2]: token. Beside a record that cannot be read the mark counts all the same.

mark(ARGV[2], ENDED, write)
if live and record[TOKEN] == ARGV[2] then finish(now, false) end
return {now, ''}
