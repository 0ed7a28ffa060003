-- wrk's script: the requests that server.mjs captured, one after the other, again and again.
--
--   wrk -s replay.lua <url> -- <file>

local requests, current = {}, 0

function init(args)
   local file = assert(io.open(args[1], "rb"))
   for line in file:lines() do
      table.insert(requests, file:read(tonumber(line)))
      file:read(1)
   end
   file:close()
end

function request()
   current = current % #requests + 1
   return requests[current]
end
