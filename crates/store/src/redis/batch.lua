-- What `Contents::apply` does.
-- KEYS: head, index and data of the generation, then index and data of each generation that is discarded.
-- ARGV: incarnation, epoch, generation, sequence, chunks merged up to, chunks freed at most, what a piece counts for,
-- then the operations.
local head, index, data = KEYS[1], KEYS[2], KEYS[3]
local call, ARGS = redis.call, ARGV
local number, sub = tonumber, string.sub
local function text(n) return string.format('%.0f', n) end

local m = call('HMGET', head, 'i', 'e', 's', 'c', 'w', 'g')
if m[1] ~= ARGS[1] then
  if not m[1] and call('EXISTS', head) == 1 then return {'foreign'} end
  return {'lost', m[1] or nil}
end
if m[2] ~= ARGS[2] then return {'epoch', m[2]} end
if m[5] ~= ARGS[3] then return {'generation', m[5]} end
if text(number(m[3]) + 1) ~= ARGS[4] then return {'sequence', m[3]} end
local held = call('HGET', index, '')
if not held or call('HGET', data, '') ~= ARGS[1] then return {'lost', m[1]} end
held = number(held)
local merged, most, piece = number(ARGS[5]), number(ARGS[6]), number(ARGS[7])

-- First look at everything: Redis does not roll back. kind, tail and count of an object are what they would be by then.
local objects, generations, order = {}, {}, {}
local counts, freed, grows, key = m[4], 0, false, 4
for generation in string.gmatch(m[6], '%d+') do
  generations[generation] = true
  order[#order + 1] = generation
end

local function look(name)
  local object = objects[name]
  if object then return object end
  local entry = call('HGET', index, name)
  if not entry then
    object = {}
  elseif sub(entry, 1, 1) == 'v' then
    object = {kind = 'v', value = assert(number(sub(entry, 2)))}
  else
    local start, stop, last, chunks = string.match(entry, '^r(%d+) (%d+) (%d+) (%d+)$')
    object = {kind = 'r', start = assert(number(start)), stop = number(stop), last = number(last), chunks = number(chunks)}
    object.tail, object.count = object.stop, object.chunks
  end
  objects[name] = object
  return object
end

local function replace(name, kind)
  local object = look(name)
  if object.kind == 'r' then freed = freed + object.count end
  object.kind, object.count = kind, 0
  return object
end

local at, operation = 8, 0
while at <= #ARGS do
  local what, name = ARGS[at], ARGS[at + 1]
  if what == 'A' then
    local from = number(ARGS[at + 2])
    local object = look(name)
    if not object.kind then
      object.kind, object.tail, object.count = 'r', from, 0
    elseif object.kind == 'v' then
      return {'unfit', text(operation)}
    elseif object.tail ~= from then
      return {'unfit', text(operation), text(object.tail)}
    end
    object.tail, object.count = from + #ARGS[at + 3], object.count + 1
    grows, at = true, at + 4
  elseif what == 'T' then
    local object = look(name)
    if object.kind ~= 'r' then return {'unfit', text(operation)} end
    if number(ARGS[at + 2]) > object.tail then return {'unfit', text(operation), text(object.tail)} end
    at = at + 3
  elseif what == 'P' then
    replace(name, 'v')
    grows, at = true, at + 3
  elseif what == 'R' then
    replace(name, nil)
    at = at + 2
  elseif what == 'B' then
    replace(name, 'r').tail = number(ARGS[at + 2])
    grows, at = true, at + 3
  elseif what == 'O' then
    counts = ARGS[3]
    at = at + 1
  elseif what == 'D' then
    if name == counts or name == ARGS[3] then return {'used', text(operation)} end
    generations[name] = nil
    at = at + 2
  else
    error('an operation that is not known')
  end
  if freed > most then return {'much', text(operation)} end
  operation = operation + 1
end

-- Then do it. The first write is refused where memory is short, those behind it are not: if nothing is added, it is one
-- that needs no memory.
local left = {}
for _, generation in ipairs(order) do
  if generations[generation] then left[#left + 1] = generation end
end
if not grows then call('HDEL', head, '') end
call('HSET', head, 's', ARGS[4], 'g', table.concat(left, ' '))
if counts then call('HSET', head, 'c', counts) end

local budget = most - freed
local function value_of(name) return 'v' .. name end
local function chunk_of(offset, name) return 'c' .. text(offset) .. ':' .. name end

local function free(name, object)
  if object.value then
    call('HDEL', data, value_of(name))
    held = held - object.value - #name - piece
  elseif object.start then
    local offset = object.start
    while offset < object.stop do
      local field = chunk_of(offset, name)
      local length = call('HSTRLEN', data, field)
      if length == 0 then break end
      call('HDEL', data, field)
      offset = offset + length
    end
    held = held - (object.stop - object.start) - object.chunks * piece - #name - piece
  end
  object.value, object.start, object.stop = nil, nil, nil
end

local function begin(name, object, offset)
  object.start, object.stop, object.last, object.chunks = offset, offset, offset, 0
  held = held + #name + piece
end

at = 8
while at <= #ARGS do
  local what, name = ARGS[at], ARGS[at + 1]
  if what == 'A' then
    local object, octets = objects[name], ARGS[at + 3]
    if not object.start then begin(name, object, number(ARGS[at + 2])) end
    if object.chunks > 0 and object.stop - object.last + #octets <= merged then
      local field = chunk_of(object.last, name)
      call('HSET', data, field, (call('HGET', data, field) or '') .. octets)
      held = held + #octets
    else
      call('HSET', data, chunk_of(object.stop, name), octets)
      object.last, object.chunks = object.stop, object.chunks + 1
      held = held + #octets + piece
    end
    object.stop = object.stop + #octets
    at = at + 4
  elseif what == 'T' then
    local object, to = objects[name], number(ARGS[at + 2])
    while object.start < to and budget > 0 do
      local field = chunk_of(object.start, name)
      local length = call('HSTRLEN', data, field)
      if length == 0 or object.start + length > to then break end
      call('HDEL', data, field)
      object.start, object.chunks = object.start + length, object.chunks - 1
      held, budget = held - length - piece, budget - 1
    end
    at = at + 3
  elseif what == 'P' then
    local object, octets = objects[name], ARGS[at + 2]
    free(name, object)
    call('HSET', data, value_of(name), octets)
    object.value = #octets
    held = held + #octets + #name + piece
    at = at + 3
  elseif what == 'R' then
    free(name, objects[name])
    at = at + 2
  elseif what == 'B' then
    free(name, objects[name])
    begin(name, objects[name], number(ARGS[at + 2]))
    at = at + 3
  elseif what == 'O' then
    at = at + 1
  else
    call('UNLINK', KEYS[key], KEYS[key + 1])
    key = key + 2
    at = at + 2
  end
end

held = text(held)
local put, gone = {'', held}, {}
for name, object in pairs(objects) do
  if object.value then
    put[#put + 1] = name
    put[#put + 1] = 'v' .. text(object.value)
  elseif object.start then
    put[#put + 1] = name
    put[#put + 1] = 'r' .. text(object.start) .. ' ' .. text(object.stop) .. ' ' .. text(object.last) .. ' '
      .. text(object.chunks)
  else
    gone[#gone + 1] = name
  end
end
if #gone > 0 then call('HDEL', index, unpack(gone)) end
call('HSET', index, unpack(put))
return {'ok', ARGS[4], held}
