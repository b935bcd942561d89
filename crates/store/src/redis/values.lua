-- What `Contents::values` does. KEYS: data of the generation. ARGV: octets of a value at most, then the names.
local fields = {''}
for at = 2, #ARGV do fields[at] = 'v' .. ARGV[at] end
local values = redis.call('HMGET', KEYS[1], unpack(fields))
local most, reply = tonumber(ARGV[1]), {'values'}
-- Together they may have become longer since they were listed.
local left = 2 * most
for at = 2, #fields do
  local value = values[1] and values[at]
  -- Nobody writes longer ones.
  if value and #value <= most and #value <= left then
    left = left - #value
    reply[at] = value
  else
    reply[at] = false
  end
end
return reply
