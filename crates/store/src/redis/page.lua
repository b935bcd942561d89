-- What `Contents::page` does. KEYS: index and data of the generation. ARGV: name, offset, octets at most.
local index, data, name = KEYS[1], KEYS[2], ARGV[1]
local call = redis.call
local entry = call('HGET', index, name)
if not entry or not call('HGET', data, '') then return {'absent'} end
if string.sub(entry, 1, 1) == 'v' then
  local value = call('HGET', data, 'v' .. name)
  -- Whoever reads takes no longer ones, and nobody writes them.
  if not value or #value > tonumber(ARGV[3]) then return {'foreign'} end
  return {'value', value}
end
local start, stop = string.match(entry, '^r(%d+) (%d+)')
local offset, most, octets = tonumber(ARGV[2]), tonumber(ARGV[3]), 0
local reply = {'range', start, stop, ARGV[2]}
local last = tonumber(stop)
while offset < last do
  local chunk = call('HGET', data, 'c' .. string.format('%.0f', offset) .. ':' .. name)
  if not chunk then
    if octets == 0 then return {'absent'} end
    return {'foreign'}
  end
  -- Nobody writes such ones: behind an empty one this would go on for ever.
  if #chunk == 0 or #chunk > most then return {'foreign'} end
  if octets > 0 and octets + #chunk > most then break end
  reply[#reply + 1] = chunk
  octets, offset = octets + #chunk, offset + #chunk
end
if offset > last then return {'absent'} end
return reply
