-- ARGV[2]: token. Works beside a record that cannot be read as well: what counts is the mark.

mark(ARGV[2], ENDED, write)
if readable and holds(ARGV[2]) then finish(now, false) end
return {now, ''}
