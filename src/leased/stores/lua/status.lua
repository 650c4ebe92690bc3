-- Uses: showing.

if not readable then return {now, 'unreadable'} end
return shown('')
