#include "server/wire/call_guard.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "nlohmann/json.hpp"
#include "server/wire/message_guard.h"
#include "server/wire/own_sockets.h"
#include "server/wire/peer_name.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr std::chrono::milliseconds kPeriod(10);
constexpr int kPeriodsOfPatience = 100;     // until it looks where memory has not grown
constexpr int64_t kBytesInDoubt = 1 << 20;  // grown since the last look: nothing more is read before the next
constexpr std::chrono::milliseconds kPeriodInFlood(1);
constexpr int64_t kBytesInFlood = 128 << 10;
// In a flood what was ended is not free at once, and after it the process grows within what that has left, which does not show.
// So bytes are counted then, for so long: 4 MB a second.
constexpr std::chrono::seconds kAlert(2);
constexpr uint64_t kReceivedInAlert = 4 << 10;
constexpr int kBacklogBytes = 256;  // that wait to be read
constexpr int kPolite = 4;          // calls of a connection that is not among the greedy

// What channelz tells; it makes the text, which is whole.
nlohmann::json Taken(char* text) {
  if (text == nullptr) return nlohmann::json::object();
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  gpr_free(text);
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

// Numbers of 64 bits are strings there, and those that are zero are left out.
int64_t Number(const nlohmann::json& object, const char* name) {
  int64_t number = 0;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string() || !absl::SimpleAtoi(found->get_ref<const std::string&>(), &number)) return 0;
  return number;
}

const nlohmann::json& Part(const nlohmann::json& object, const char* name) {
  static const nlohmann::json* const kNone = new nlohmann::json(nlohmann::json::object());
  const auto found = object.find(name);
  return found == object.end() ? *kNone : *found;
}

ConnectionCalls CallsOf(int64_t id, const nlohmann::json& reference) {
  const nlohmann::json socket = Part(Taken(grpc_channelz_get_socket(static_cast<intptr_t>(id))), "socket");
  const nlohmann::json& data = Part(socket, "data");
  const std::string name = reference.value("name", "");  // "chttp2 ipv4:127.0.0.1:4711"
  const int64_t failed = Number(data, "streamsFailed");
  return {.id = id,
          .peer = name.substr(name.rfind(' ') + 1),
          .open = Number(data, "streamsStarted") - Number(data, "streamsSucceeded") - failed,
          .failed = failed};
}

std::vector<ConnectionCalls> ConnectionsOf(intptr_t server) {
  std::vector<ConnectionCalls> connections;
  intptr_t next = 0;
  for (bool more = true; more;) {
    const nlohmann::json page = Taken(grpc_channelz_get_server_sockets(server, next, 0));
    more = false;
    for (const nlohmann::json& reference : Part(page, "socketRef")) {
      connections.push_back(CallsOf(Number(reference, "socketId"), reference));
      next = static_cast<intptr_t>(connections.back().id) + 1;
      more = !page.value("end", false);
    }
  }
  return connections;
}

struct ServerCalls {
  std::vector<intptr_t> servers;
  int64_t begun = 0;  // calls of all of them
};

ServerCalls CallsOfServers() {
  ServerCalls found;
  const nlohmann::json all = Taken(grpc_channelz_get_servers(0));
  for (const nlohmann::json& server : Part(all, "server")) {
    found.servers.push_back(static_cast<intptr_t>(Number(Part(server, "ref"), "serverId")));
    found.begun += Number(Part(server, "data"), "callsStarted");
  }
  return found;
}

std::vector<ConnectionCalls> ConnectionsOf(const std::vector<intptr_t>& servers) {
  std::vector<ConnectionCalls> connections;
  for (const intptr_t server : servers) {
    for (ConnectionCalls& connection : ConnectionsOf(server)) connections.push_back(std::move(connection));
  }
  return connections;
}

int64_t Sum(const std::vector<ConnectionCalls>& connections) {
  int64_t open = 0;
  for (const ConnectionCalls& connection : connections) open += connection.open;
  return open;
}

void EndThoseWithMoreToRead(const std::vector<Address>& addresses) {
  const auto look = [](int descriptor) {
    int unread = 0;
    if (ioctl(descriptor, FIONREAD, &unread) == 0 && unread >= kBacklogBytes) EndConnection(descriptor);
  };
  for (const Address& address : addresses) ForEachSocketOf(address, look);
}

}  // namespace

std::vector<ConnectionCalls> Greediest(std::vector<ConnectionCalls> connections, int most, int most_of_one) {
  const auto greed = [](const ConnectionCalls& connection) { return connection.open + connection.failed; };
  int64_t open = Sum(connections);
  std::ranges::sort(connections, std::ranges::greater(), greed);
  size_t closed = 0;
  for (; closed < connections.size() && (open > most || greed(connections[closed]) > most_of_one); ++closed)
    open -= connections[closed].open;
  connections.resize(closed);
  return connections;
}

CallGuard::CallGuard(std::vector<Address> listening, int most_calls, int most_of_one, int64_t message_bytes)
    : listening_(std::move(listening)),
      most_calls_(most_calls),
      most_of_one_(most_of_one),
      message_bytes_(message_bytes),
      thread_([this] { Loop(); }) {}

CallGuard::~CallGuard() {
  ending_ = true;
  watch_.Wake();
  thread_.join();
}

void CallGuard::Loop() {
  pthread_setname_np(pthread_self(), "call-guard");
  MessageGuard messages(listening_, message_bytes_);
  MessageGuard::State state = MessageGuard::State::kCalm;
  ProcessBytes memory = MemoryOfProcess(), low = memory;
  int waited = 0;
  auto alert_until = std::chrono::steady_clock::time_point();
  for (bool well = true;;) {
    const auto now = std::chrono::steady_clock::now();
    const bool calm = well && state != MessageGuard::State::kTooMuch;
    if (!calm) alert_until = now + kAlert;
    const bool alert = now < alert_until;
    watch_.Looked({.since = calm ? low : memory,
                   .grown = calm ? kBytesInDoubt : kBytesInFlood,
                   .received = alert ? BytesReceived() + kReceivedInAlert : kAnyNumber,
                   .calm = calm});
    const bool often = alert || state != MessageGuard::State::kCalm;
    watch_.Wait(absl::FromChrono(often ? kPeriodInFlood : kPeriod), /*for_readers=*/!alert);
    if (ending_) return;
    memory = MemoryOfProcess();
    state = messages.Look(memory);
    low = LeastOf(low, memory);
    if (well && !alert && GrownSince(low, memory) <= kBytesInDoubt && ++waited < kPeriodsOfPatience) continue;
    well = Look();
    low = memory;
    waited = 0;
  }
}

bool CallGuard::Look() {
  const ServerCalls calls = CallsOfServers();
  const auto now = std::chrono::steady_clock::now();
  const double periods = std::chrono::duration<double>(now - std::exchange(looked_at_, now)) / kPeriod;
  const bool burst = static_cast<double>(calls.begun - std::exchange(begun_, calls.begun)) > many_ * std::max(1.0, periods);
  if (burst) EndThoseWithMoreToRead(listening_);
  if (!flood_ && calls.begun - ended_ <= many_) return !burst;

  const std::vector<ConnectionCalls> connections = ConnectionsOf(calls.servers);
  const int64_t open = Sum(connections);
  ended_ = calls.begun - open;  // what begins while it looks may be taken for open twice, never for ended
  std::vector<ConnectionCalls> live = LiveOf(connections);
  if (open <= many_) {
    flood_ = false;
    for (const ConnectionCalls& connection : connections) known_[connection.id].failed = connection.failed;
    return !burst;
  }
  EndThoseWithMoreToRead(listening_);
  if (!std::exchange(flood_, true))
    spdlog::warn("{} calls are open, {} are allowed: the greediest connections are closed", open, most_calls_);
  const int share = most_calls_ / 2 / std::max(1, static_cast<int>(connections.size()));
  const std::vector<ConnectionCalls> greediest =
      Greediest(std::move(live), most_calls_ / 2, std::clamp(share, kPolite, most_of_one_));
  for (const ConnectionCalls& connection : greediest) known_[connection.id].ended = true;
  std::vector<std::string> peers;
  for (const ConnectionCalls& connection : greediest) peers.push_back(connection.peer);
  EndConnectionsOf(peers, listening_);
  return false;
}

// Without those that are ended, and are no more than waited for. What failed counts since all was well.
std::vector<ConnectionCalls> CallGuard::LiveOf(const std::vector<ConnectionCalls>& connections) {
  std::map<int64_t, Known> present;
  std::vector<ConnectionCalls> live;
  for (const ConnectionCalls& connection : connections) {
    const auto found = known_.find(connection.id);
    const Known known = found == known_.end() ? Known() : found->second;
    present[connection.id] = known;
    if (known.ended) continue;
    live.push_back(connection);
    live.back().failed -= known.failed;
  }
  known_ = std::move(present);
  return live;
}

}  // namespace moed
