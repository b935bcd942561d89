-- What `Contents::claim` does.
-- KEYS: head, index and data of the generation. ARGV: incarnation, 1 if the store was found empty, epoch, generation,
-- how far the sequence jumps, generations at most.
local head, index, data = KEYS[1], KEYS[2], KEYS[3]
local call = redis.call
local m = call('HMGET', head, 'i', 'e', 's', 'l', 'c', 'g')
local held, mark = call('HGET', index, ''), call('HGET', data, '')
if not m[1] then
  if call('EXISTS', head) == 1 then return {'foreign'} end
  if ARGV[2] ~= '1' then return {'lost'} end
  m = {ARGV[1], ARGV[3], '0', '0', false, ''}
  held = false
else
  if ARGV[2] == '1' or m[1] ~= ARGV[1] then return {'lost', m[1]} end
  -- Twenty digits each.
  if ARGV[3] < m[2] then return {'epoch', m[2]} end
end
local known, count = false, 0
for generation in string.gmatch(m[6], '%d+') do
  count = count + 1
  if generation == ARGV[4] then known = true end
end
if known then
  if not held or mark ~= ARGV[1] then return {'lost', m[1]} end
else
  if tonumber(ARGV[4]) <= tonumber(m[4]) then return {'generation', m[4]} end
  if count >= tonumber(ARGV[6]) then return {'generations'} end
  held = '0'
end
local sequence = string.format('%.0f', tonumber(m[3]) + tonumber(ARGV[5]))
-- A first write that needs no memory: those behind it are not refused, neither halfway nor at all.
call('HDEL', head, '')
if not known then
  call('UNLINK', index, data)
  call('HSET', index, '', '0')
  call('HSET', data, '', ARGV[1])
  m[6] = m[6] == '' and ARGV[4] or m[6] .. ' ' .. ARGV[4]
  m[4] = ARGV[4]
end
call('HSET', head, 'i', ARGV[1], 'e', ARGV[3], 's', sequence, 'l', m[4], 'w', ARGV[4], 'g', m[6])
return {'ok', sequence, known and '0' or '1', m[5] or '', held}
