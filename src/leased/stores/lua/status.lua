-- Uses: showing.
-- Answers 's' as `shown`.

if not readable then return at .. 'u' end
return shown('s')
