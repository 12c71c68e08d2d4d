#include "runtime/compile_messages.hpp"

#include "runtime/fields.hpp"

namespace moecl {

std::string message_of(const CompileRequest& request) {
  std::string message;
  add_field(message, static_cast<long long>(request.position));
  for (const std::string* text :
       {&request.platform, &request.version, &request.name, &request.source, &request.options})
    add_field(message, *text);
  for (const std::string& trial : request.trials) add_field(message, trial);
  return message;
}

CompileRequest request_from(std::string_view message) {
  CompileRequest request;
  request.position = static_cast<std::size_t>(take_number(message));
  for (std::string* text : {&request.platform, &request.version, &request.name, &request.source, &request.options})
    *text = take_field(message);
  while (!message.empty()) request.trials.emplace_back(take_field(message));
  return request;
}

std::string message_of(const Compiled& answer) {
  std::string message;
  add_field(message, static_cast<long long>(answer.outcome));
  add_field(message, answer.cl_status);
  add_field(message, answer.why);
  add_field(message, {reinterpret_cast<const char*>(answer.binary.data()), answer.binary.size()});
  return message;
}

Compiled answer_from(std::string_view message) {
  Compiled answer;
  answer.outcome = static_cast<Compiled::Outcome>(take_number(message));
  answer.cl_status = static_cast<int>(take_number(message));
  answer.why = take_field(message);
  const std::string_view binary = take_field(message);
  answer.binary.assign(binary.begin(), binary.end());
  return answer;
}

}  // namespace moecl
