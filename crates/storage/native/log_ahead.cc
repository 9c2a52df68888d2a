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
// After an error of the engine the last log is sealed before the next one begins: it is cut behind the last batch that the engine applied, and what
// an earlier sync failed on is written once more and synced. A batch whose write failed is then in no log, so that a crash while the engine
// resumes, one keyspace after the other, cannot apply it to some keyspaces and not to others.
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

#include "db/log_reader.h"
#include "file/sequence_file_reader.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "util/coding.h"

namespace settee {

using namespace ROCKSDB_NAMESPACE;

// Zeros that are written at a time.
constexpr uint64_t AHEAD_BYTES = 512 << 10;
// Where a sync has more to write on the whole, there are no zeros ahead.
constexpr uint64_t SMALL_SYNC_BYTES_MAX = 32 << 10;
// Not more of what was written over zeros is unsynced. `UNSYNCED_BYTES_MAX` of wal.rs.
constexpr uint64_t UNSYNCED_BYTES_MAX = 256 << 10;

// A batch begins with its sequence number (8 bytes) and the number of its entries (4).
constexpr size_t BATCH_HEADER_BYTES = 12;
// The kernel keeps files in pages of this size, or of multiples of it.
constexpr uint64_t PAGE_BYTES = 4096;

class LogFile;

// What the logs of one engine know of each other. The engine closes its files before its environment goes.
struct Logs {
  // How much a sync has to write on the whole, from log to log.
  std::atomic<uint64_t> usual{0};
  std::mutex mutex;
  // The log that was opened last, unless it is closed.
  LogFile* last = nullptr;
  // Where the engine's logs are.
  std::string directory;
  // The engine had an error: the last log may hold a batch that was not applied.
  std::atomic<bool> is_suspect{false};
  // The engine whose logs these are, once it is open.
  std::atomic<DB*> db{nullptr};
};

class LogFile : public FSWritableFileOwnerWrapper {
 public:
  // `fd` is the same file once more, to write beyond its end and to read.
  LogFile(std::unique_ptr<FSWritableFile>&& file, const std::string& name,
          int fd, const std::shared_ptr<Logs>& logs)
      : FSWritableFileOwnerWrapper(std::move(file)),
        name_(name),
        fd_(fd),
        logs_(logs),
        usual_(logs->usual) {
    const std::lock_guard<std::mutex> guard(logs_->mutex);
    logs_->last = this;
  }

  ~LogFile() override { CloseOwn(); }

  // Another log comes after this one. Nobody appends meanwhile: the engine begins a log as the only writer there is.
  IOStatus End() {
    ended_ = true;
    if (!logs_->is_suspect && !sync_failed_ && !append_failed_) {
      return CutZeros();
    }
    IOStatus sealed = Seal();
    if (sealed.ok()) {
      logs_->is_suspect = false;
    }
    return sealed;
  }

  IOStatus Append(const Slice& data, const IOOptions& options,
                  IODebugContext* dbg) override {
    if (sealed_) {
      return IOStatus::OK();
    }
    IOStatus made = MakeRoom(data.size(), options, dbg);
    if (made.ok()) {
      made = target()->Append(data, options, dbg);
    }
    return Appended(data.size(), std::move(made));
  }

  IOStatus Append(const Slice& data, const IOOptions& options,
                  const DataVerificationInfo& verification,
                  IODebugContext* dbg) override {
    if (sealed_) {
      return IOStatus::OK();
    }
    IOStatus made = MakeRoom(data.size(), options, dbg);
    if (made.ok()) {
      made = target()->Append(data, options, verification, dbg);
    }
    return Appended(data.size(), std::move(made));
  }

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    if (sealed_) {
      return IOStatus::OK();
    }
    if (sync_failed_) {
      return SyncAgain();
    }
    // What is appended while the sync goes on may not be part of it.
    const uint64_t end = size_.load(std::memory_order_acquire);
    return Synced(end, target()->Sync(options, dbg));
  }

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    if (sealed_) {
      return IOStatus::OK();
    }
    if (sync_failed_) {
      return SyncAgain();
    }
    const uint64_t end = size_.load(std::memory_order_acquire);
    return Synced(end, target()->Fsync(options, dbg));
  }

  // Begins to write what was appended. The kernel reports a failure once: to this call, and to no sync after it.
  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options,
                     IODebugContext* dbg) override {
    if (sealed_) {
      return IOStatus::OK();
    }
    IOStatus begun = target()->RangeSync(offset, bytes, options, dbg);
    if (!begun.ok()) {
      sync_failed_ = true;
    }
    return begun;
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
      sync_failed_ = true;
      return Failed("while cutting zeros off a log");
    }
    zeroed_ = end;
    return Synced(end, IOStatus::OK());
  }

  // Syncs again after a failure. The kernel marks what it could not write as written, so that a second sync would report success for bytes that
  // are not on disk: they are written again first. A log that is still appended to is left alone; the engine ends it.
  IOStatus SyncAgain() {
    return ended_ ? Seal() : IOStatus::IOError("an earlier sync failed", name_);
  }

  // Has the log hold what the engine applied and nothing else, on disk. Nobody appends any more: what the engine's buffer still holds of a batch
  // that failed is dropped.
  IOStatus Seal() {
    if (sealed_) {
      return IOStatus::OK();
    }
    uint64_t end = 0;
    IOStatus done = FindAppliedEnd(&end);
    if (done.ok() && sync_failed_) {
      done = WriteAgain(synced_ / PAGE_BYTES * PAGE_BYTES, end);
    }
    if (done.ok()) {
      // By the engine's own handle, which extends the file to the length that it knows when it is closed.
      done = target()->Truncate(end, IOOptions(), nullptr);
    }
    if (!done.ok()) {
      return done;
    }
    // From here on there is nothing else in it, also when it is tried again.
    size_ = end;
    zeroed_ = end;
    append_failed_ = false;
    if (fdatasync(fd_) != 0) {
      sync_failed_ = true;
      return Failed("while syncing a log again");
    }
    synced_ = end;
    sync_failed_ = false;
    sealed_ = true;
    return done;
  }

  // Finds where the last batch ends that the engine applied.
  IOStatus FindAppliedEnd(uint64_t* end) {
    DB* db = logs_->db;
    const SequenceNumber applied =
        db == nullptr ? kMaxSequenceNumber : db->GetLatestSequenceNumber();
    std::unique_ptr<FSSequentialFile> file;
    IOStatus opened = FileSystem::Default()->NewSequentialFile(
        name_, FileOptions(), &file, nullptr);
    if (!opened.ok()) {
      return opened;
    }
    log::Reader reader(
        nullptr, std::make_unique<SequentialFileReader>(std::move(file), name_),
        nullptr, true, 0);
    Slice batch;
    std::string scratch;
    bool is_unapplied = false;
    *end = 0;
    while (
        reader.ReadRecord(&batch, &scratch, WALRecoveryMode::kAbsoluteConsistency)) {
      // The reader goes on behind what it cannot read.
      if (reader.LastRecordOffset() != *end ||
          batch.size() < BATCH_HEADER_BYTES) {
        break;
      }
      const SequenceNumber sequence = DecodeFixed64(batch.data());
      const uint32_t entries = DecodeFixed32(batch.data() + 8);
      if (entries > 0 && sequence > applied) {
        is_unapplied = true;
        break;
      }
      *end = reader.LastRecordEnd();
    }
    if (reader.hasReadError()) {
      return IOStatus::IOError("while reading a log", name_);
    }
    // With some file systems what a failed sync did not write cannot be read any more. The engine has it in memory, but keyspaces would be
    // written one after the other, and a crash between two would part batches. The log up to here is sound: a restart reads it.
    if (!is_unapplied && !append_failed_ && *end < size_) {
      return IOStatus::IOError(
          "the end of the log was lost by a failed sync; nothing acknowledged "
          "as synced was in it: restart the server",
          name_);
    }
    return IOStatus::OK();
  }

  // Writes bytes over themselves, so that the next sync writes them to disk.
  IOStatus WriteAgain(uint64_t from, uint64_t to) {
    // A failure that was reported already is reported once more to this handle.
    (void)!fdatasync(fd_);
    std::string piece(1 << 20, '\0');
    while (from < to) {
      const size_t wanted = std::min<uint64_t>(to - from, piece.size());
      const ssize_t read = pread(fd_, piece.data(), wanted, from);
      const ssize_t written =
          read > 0 ? pwrite(fd_, piece.data(), read, from) : -1;
      if (written <= 0) {
        return Failed("while writing the end of a log again");
      }
      from += written;
    }
    return IOStatus::OK();
  }

  IOStatus Failed(const char* doing) {
    return IOStatus::IOError(doing, name_ + ": " + strerror(errno));
  }

  IOStatus Appended(uint64_t bytes, IOStatus&& appended) {
    if (appended.ok()) {
      size_.fetch_add(bytes, std::memory_order_release);
    } else {
      append_failed_ = true;
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
    } else {
      sync_failed_ = true;
    }
    return std::move(synced);
  }

  void CloseOwn() {
    {
      const std::lock_guard<std::mutex> guard(logs_->mutex);
      if (logs_->last == this) {
        logs_->last = nullptr;
      }
    }
    if (fd_ >= 0) {
      close(fd_);
      fd_ = -1;
    }
  }

  const std::string name_;
  int fd_;
  const std::shared_ptr<Logs> logs_;
  std::atomic<bool> ended_{false};
  // It holds what the engine applied, on disk, and takes nothing any more.
  std::atomic<bool> sealed_{false};
  // What is not synced may not be written by another sync.
  std::atomic<bool> sync_failed_{false};
  // It may end with a part of a batch.
  std::atomic<bool> append_failed_{false};
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
    if (!IsLog(name) || !IsOfEngine(name)) {
      return target()->NewWritableFile(name, options, file, dbg);
    }
    {
      const std::lock_guard<std::mutex> guard(logs_->mutex);
      IOStatus ended =
          logs_->last == nullptr ? IOStatus::OK() : logs_->last->End();
      if (!ended.ok()) {
        return ended;
      }
    }
    IOStatus made = target()->NewWritableFile(name, options, file, dbg);
    if (!made.ok() || (*file)->use_direct_io()) {
      return made;
    }
    const int fd = open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors, mostly. The engine stops and resumes; a log that cannot be sealed is not begun.
      IOStatus failed = IOStatus::IOError("while opening a log once more",
                                          name + ": " + strerror(errno));
      file->reset();
      unlink(name.c_str());
      return failed;
    }
    file->reset(new LogFile(std::move(*file), name, fd, logs_));
    return made;
  }

  const std::shared_ptr<Logs>& logs() const { return logs_; }

 private:
  const std::shared_ptr<Logs> logs_ = std::make_shared<Logs>();

  // A checkpoint copies a log to another directory, while the engine goes on with its own. The engine begins one when it is opened.
  bool IsOfEngine(const std::string& name) {
    const std::string directory = name.substr(0, name.rfind('/'));
    const std::lock_guard<std::mutex> guard(logs_->mutex);
    if (logs_->directory.empty()) {
      logs_->directory = directory;
    }
    return logs_->directory == directory;
  }

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
