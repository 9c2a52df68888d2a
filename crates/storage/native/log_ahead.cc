// Logs whose files do not grow at each sync.
//
// A sync of a file that grew writes the file's new length too, which is a second write to the disk, and the engine's own room ahead
// (fallocate) changes nothing about that. Here zeros are written ahead of a log's end, some thousand commits' worth at a time, so that commits
// overwrite: 7,100 syncs of 512 bytes a second instead of 5,400, and 6,600 of 16 KiB instead of 4,700 (ext4, November 2026).
// Long batches gain nothing and would be written twice: they are appended as ever.
//
// What the reader of a log may rely upon, `crates/storage/src/wal.rs`: where a loss of power left zeros in place of what was written, all that
// lies behind them and can be read was not synced either, and is within UNSYNCED_BYTES_MAX of them. Only the last log has zeros ahead: they are
// cut off, and that is on disk, before the next log is there.
//
// `scripts/rocksdb.sh` compiles this with the engine, behind its `db/c.cc`, whose type of an environment it makes.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace settee {

using namespace ROCKSDB_NAMESPACE;

// Zeros that are written at a time.
constexpr uint64_t AHEAD_BYTES = 512 << 10;
// Where a sync has more to write on the whole, there are no zeros ahead.
constexpr uint64_t SMALL_SYNC_BYTES_MAX = 32 << 10;
// Not more of what was written over zeros is unsynced. `UNSYNCED_BYTES_MAX` of wal.rs.
constexpr uint64_t UNSYNCED_BYTES_MAX = 256 << 10;

class LogFile;

// What the logs of one engine know of each other. The engine closes its files before its environment goes.
struct Logs {
  // How much a sync has to write on the whole, from log to log.
  std::atomic<uint64_t> usual{0};
  std::mutex mutex;
  // The log that was opened last, unless it is closed.
  LogFile* last = nullptr;
};

class LogFile : public FSWritableFileOwnerWrapper {
 public:
  // `fd` is the same file once more, to write beyond its end.
  LogFile(std::unique_ptr<FSWritableFile>&& file, int fd, Logs& logs)
      : FSWritableFileOwnerWrapper(std::move(file)),
        fd_(fd),
        logs_(logs),
        usual_(logs.usual) {
    const std::lock_guard<std::mutex> guard(logs_.mutex);
    logs_.last = this;
  }

  ~LogFile() override { CloseOwn(); }

  // Another log comes after this one. Nobody appends meanwhile: the engine begins a log as the only writer there is.
  IOStatus End() {
    ended_ = true;
    return CutZeros();
  }

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    IOStatus made = MakeRoom(data.size(), options, dbg);
    if (made.ok()) {
      made = target()->Append(data, options, dbg);
    }
    return Appended(data.size(), std::move(made));
  }

  IOStatus Append(const Slice& data, const IOOptions& options,
                  const DataVerificationInfo& verification,
                  IODebugContext* dbg) override {
    IOStatus made = MakeRoom(data.size(), options, dbg);
    if (made.ok()) {
      made = target()->Append(data, options, verification, dbg);
    }
    return Appended(data.size(), std::move(made));
  }

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    // What is appended while the sync goes on may not be part of it.
    const uint64_t end = size_.load(std::memory_order_acquire);
    return Synced(end, target()->Sync(options, dbg));
  }

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    const uint64_t end = size_.load(std::memory_order_acquire);
    return Synced(end, target()->Fsync(options, dbg));
  }

  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    IOStatus cut = CutZeros();
    IOStatus closed = target()->Close(options, dbg);
    CloseOwn();
    return closed.ok() ? cut : closed;
  }

 private:
  // Before `bytes` are appended. Only the thread that appends calls this.
  IOStatus MakeRoom(uint64_t bytes, const IOOptions& options,
                    IODebugContext* dbg) {
    const uint64_t end = size_ + bytes;
    const bool is_long = end - synced_ > UNSYNCED_BYTES_MAX;
    if (is_long && synced_ < zeroed_) {
      // From here on the file grows as it is written; what was written over zeros is on disk before.
      IOStatus synced = Sync(options, dbg);
      return synced.ok() ? CutZeros() : synced;
    }
    if (!is_long && !ended_ && end > zeroed_ &&
        usual_ <= SMALL_SYNC_BYTES_MAX) {
      WriteZeros(std::max<uint64_t>(size_, zeroed_), end + AHEAD_BYTES);
    }
    return IOStatus::OK();
  }

  // Without them the file grows as it is written.
  void WriteZeros(uint64_t from, uint64_t to) {
    static const std::string zeros(64 << 10, '\0');
    while (from < to) {
      const size_t piece = std::min<uint64_t>(to - from, zeros.size());
      const ssize_t written = pwrite(fd_, zeros.data(), piece, from);
      if (written <= 0) {
        // A full disk, mostly: what is appended says so, if it is.
        return;
      }
      from += written;
      zeroed_ = from;
    }
  }

  // What was appended is on disk then, and so is where it ends.
  IOStatus CutZeros() {
    if (size_ >= zeroed_) {
      return IOStatus::OK();
    }
    const uint64_t end = size_;
    if (ftruncate(fd_, end) != 0 || fdatasync(fd_) != 0) {
      return IOStatus::IOError("while cutting zeros off a log", strerror(errno));
    }
    zeroed_ = end;
    return Synced(end, IOStatus::OK());
  }

  IOStatus Appended(uint64_t bytes, IOStatus&& appended) {
    if (appended.ok()) {
      size_.fetch_add(bytes, std::memory_order_release);
    }
    return std::move(appended);
  }

  IOStatus Synced(uint64_t end, IOStatus&& synced) {
    if (synced.ok()) {
      uint64_t before = synced_;
      while (before < end && !synced_.compare_exchange_weak(before, end)) {
      }
      if (before < end) {
        usual_ = (7 * usual_ + (end - before)) / 8;
      }
    }
    return std::move(synced);
  }

  void CloseOwn() {
    {
      const std::lock_guard<std::mutex> guard(logs_.mutex);
      if (logs_.last == this) {
        logs_.last = nullptr;
      }
    }
    if (fd_ >= 0) {
      close(fd_);
      fd_ = -1;
    }
  }

  int fd_;
  bool ended_ = false;
  Logs& logs_;
  // Up to where there are zeros.
  uint64_t zeroed_ = 0;
  // What was appended, and what of that is synced, which another thread may ask for.
  std::atomic<uint64_t> size_{0};
  std::atomic<uint64_t> synced_{0};
  std::atomic<uint64_t>& usual_;
};

class Files : public FileSystemWrapper {
 public:
  explicit Files(const std::shared_ptr<FileSystem>& target)
      : FileSystemWrapper(target) {}

  const char* Name() const override { return "SetteeFiles"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file,
                           IODebugContext* dbg) override {
    if (!IsLog(name)) {
      return target()->NewWritableFile(name, options, file, dbg);
    }
    {
      const std::lock_guard<std::mutex> guard(logs_.mutex);
      IOStatus ended =
          logs_.last == nullptr ? IOStatus::OK() : logs_.last->End();
      if (!ended.ok()) {
        return ended;
      }
    }
    IOStatus made = target()->NewWritableFile(name, options, file, dbg);
    if (!made.ok() || (*file)->use_direct_io()) {
      return made;
    }
    const int fd = open(name.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      file->reset(new LogFile(std::move(*file), fd, logs_));
    }
    return made;
  }

 private:
  Logs logs_;

  static bool IsLog(const std::string& name) {
    static const std::string suffix = ".log";
    return name.size() > suffix.size() &&
           name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  }
};

}  // namespace settee

extern "C" {

// An environment as the default one, but for logs. `rocksdb_env_destroy` gives it back.
rocksdb_env_t* settee_env_create() {
  using ROCKSDB_NAMESPACE::FileSystem;
  const std::shared_ptr<FileSystem> files =
      std::make_shared<settee::Files>(FileSystem::Default());
  rocksdb_env_t* env = new rocksdb_env_t;
  env->rep = ROCKSDB_NAMESPACE::NewCompositeEnv(files).release();
  env->is_default = false;
  return env;
}
}
