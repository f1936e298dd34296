#include "server/wire/call_guard.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(10);

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

int64_t Open(const nlohmann::json& data, const std::string& what) {
  return Number(data, (what + "Started").c_str()) - Number(data, (what + "Succeeded").c_str()) -
         Number(data, (what + "Failed").c_str());
}

struct ServerCalls {
  std::vector<intptr_t> servers;
  int64_t open = 0;
};

ServerCalls CallsOfServers() {
  ServerCalls found;
  const nlohmann::json all = Taken(grpc_channelz_get_servers(0));
  for (const nlohmann::json& server : Part(all, "server")) {
    found.servers.push_back(static_cast<intptr_t>(Number(Part(server, "ref"), "serverId")));
    found.open += Open(Part(server, "data"), "calls");
  }
  return found;
}

std::vector<OpenCalls> ConnectionsOf(intptr_t server) {
  std::vector<OpenCalls> connections;
  intptr_t next = 0;
  for (bool more = true; more;) {
    const nlohmann::json page = Taken(grpc_channelz_get_server_sockets(server, next, 0));
    more = false;
    for (const nlohmann::json& reference : Part(page, "socketRef")) {
      const auto id = static_cast<intptr_t>(Number(reference, "socketId"));
      const nlohmann::json socket = Part(Taken(grpc_channelz_get_socket(id)), "socket");
      const std::string name = reference.value("name", "");  // "chttp2 ipv4:127.0.0.1:4711"
      connections.push_back({name.substr(name.rfind(' ') + 1), static_cast<int>(Open(Part(socket, "data"), "streams"))});
      next = id + 1;
      more = !page.value("end", false);
    }
  }
  return connections;
}

// Whether a unix socket was taken from a listener: it has that one's path. Those of the log and of systemd have none.
bool WasTaken(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) == 0 && length > sizeof(own.ss_family);
}

// Whether the other side of a connection is that which gRPC writes so. Of unix sockets clients have no names: all are.
bool IsPeer(const sockaddr_storage& address, std::string_view peer) {
  char ip[INET6_ADDRSTRLEN] = "";
  in_port_t port = 0;
  if (address.ss_family == AF_UNIX) return peer.starts_with("unix:");
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, ip, sizeof(ip));
    port = v4.sin_port;
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, ip, sizeof(ip));
    port = v6.sin6_port;
  } else {
    return false;
  }
  std::string_view v4_in_v6 = ip;
  if (v4_in_v6.starts_with("::ffff:")) v4_in_v6.remove_prefix(7);
  return peer.ends_with(absl::StrCat(":", ntohs(port))) && peer.find(v4_in_v6) != peer.npos;
}

// What a connection has sent and nobody has read goes, too: it would be calls. gRPC sees an end, and closes the descriptor
// itself.
void EndConnection(int descriptor) {
  shutdown(descriptor, SHUT_RDWR);
  char some[16 << 10];
  while (recv(descriptor, some, sizeof(some), MSG_DONTWAIT) > 0) {
  }
}

void ShutDown(const std::vector<OpenCalls>& connections) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    const int descriptor = std::atoi(entry->d_name);
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if (address.ss_family == AF_UNIX && !WasTaken(descriptor)) continue;
    const auto is_peer = [&](const OpenCalls& connection) { return IsPeer(address, connection.peer); };
    if (std::ranges::any_of(connections, is_peer)) EndConnection(descriptor);
  }
  closedir(folder);
}

}  // namespace

std::vector<OpenCalls> Greediest(std::vector<OpenCalls> connections, int most) {
  int64_t open = 0;
  for (const OpenCalls& connection : connections) open += connection.calls;
  std::ranges::sort(connections, std::ranges::greater(), &OpenCalls::calls);
  size_t closed = 0;
  for (; closed < connections.size() && open > most; ++closed) open -= connections[closed].calls;
  connections.resize(closed);
  return connections;
}

CallGuard::CallGuard(int most_calls) : most_calls_(most_calls), thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), "call-guard");
}

CallGuard::~CallGuard() {
  ending_.Notify();
  thread_.join();
}

void CallGuard::Loop() {
  bool told = false;  // of these that are too many: once
  while (!ending_.WaitForNotificationWithTimeout(kPeriod)) {
    const ServerCalls now = CallsOfServers();
    if (now.open <= most_calls_) {
      told = false;
      continue;
    }
    std::vector<OpenCalls> connections;
    for (const intptr_t server : now.servers) {
      for (OpenCalls& connection : ConnectionsOf(server)) connections.push_back(std::move(connection));
    }
    const std::vector<OpenCalls> greediest = Greediest(std::move(connections), most_calls_ / 4 * 3);
    ShutDown(greediest);
    if (!std::exchange(told, true))
      spdlog::warn("{} calls are open, {} are allowed: {} connections with the most are closed", now.open, most_calls_,
                   greediest.size());
  }
}

}  // namespace moed
