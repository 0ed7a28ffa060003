# Calls the function of docs/guides/rails.md, which is in confirmation.rb of the working directory. Input and output are
# those of call_django.py.

require "active_record"
require "erb"
require "json"

ActiveRecord::Base.establish_connection(adapter: "postgresql", host: ARGV[0], database: "app", username: "web")

class Order < ActiveRecord::Base
end

require "./confirmation"

results = JSON.parse($stdin.read).map do |customer, address, invoice|
  "order #{place_order(customer, address, [invoice].pack("H*")).id}"
rescue MailRefused => error
  "refused #{error.message}"
rescue ActiveRecord::StatementInvalid => error
  "failed #{error.cause.result.error_field(PG::Result::PG_DIAG_SQLSTATE)}"
end
puts results.to_json
