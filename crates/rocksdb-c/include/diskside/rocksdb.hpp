// SPDX-License-Identifier: Apache-2.0
//
// RocksDB with its reads at the storage server: a rocksdb::DB that is opened in another way, and used as any other one.
//
//   diskside::rocksdb::Server server;               // the volume that the directory is on, or set server.url
//   rocksdb::DB* db;
//   rocksdb::Status status = diskside::rocksdb::Open(options, "/mnt/db", server, &db);
//
// Link with -ldiskside_rocksdb -lrocksdb. Get and MultiGet go to the server where that is faster; everything else is RocksDB's own. Of
// ReadOptions the snapshot is honoured at the server; a read with any other option that changes what is read, or how long it may
// take, RocksDB makes. With RocksDB 7 and 8.
#ifndef DISKSIDE_ROCKSDB_HPP
#define DISKSIDE_ROCKSDB_HPP

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/snapshot.h>
#include <rocksdb/utilities/stackable_db.h>
#include <rocksdb/version.h>

#include "rocksdb.h"

#if ROCKSDB_MAJOR > 8
#error "rocksdb::DB::Get has another form since RocksDB 9, for which this header has no case yet"
#endif

namespace diskside {
namespace rocksdb {

// Where the tables are.
struct Server {
  // diskside://SERVER/EXPORT/DIRECTORY, or a volume's; empty: the volume that the database's directory is on, which is mounted here.
  std::string url;
  // Bytes of values of the server that are kept in memory; 0: none.
  uint64_t values_bytes = 8 << 20;
  // Whether reads go to the server also where that is slower.
  bool always = false;
};

class Database : public ::rocksdb::StackableDB {
 public:
  // Takes the database over. If the server cannot be used, the database is closed, and its column families with it.
  static ::rocksdb::Status Over(::rocksdb::DB* db, const Server& server, ::rocksdb::DB** made,
                                std::vector<::rocksdb::ColumnFamilyHandle*>* families = nullptr) {
    std::unique_ptr<Database> database(new Database(db));
    const std::string directory = db->GetName();
    char* error = nullptr;
    database->reads_ = ds_rocksdb_wrap(&database->handle_, directory.c_str(),
                                       server.url.empty() ? nullptr : server.url.c_str(), server.values_bytes,
                                       server.always ? DS_ROCKSDB_ALWAYS : 0, &error);
    if (database->reads_ != nullptr) {
      *made = database.release();
      return ::rocksdb::Status::OK();
    }
    if (families != nullptr) {
      for (::rocksdb::ColumnFamilyHandle* family : *families) db->DestroyColumnFamilyHandle(family);
      families->clear();
    }
    ::rocksdb::Status status = ::rocksdb::Status::IOError("diskside", error);
    std::free(error);
    return status;
  }

  ~Database() override { ds_rocksdb_unwrap(reads_); }

  using ::rocksdb::StackableDB::Get;
  ::rocksdb::Status Get(const ::rocksdb::ReadOptions& options, ::rocksdb::ColumnFamilyHandle* family,
                        const ::rocksdb::Slice& key, ::rocksdb::PinnableSlice* value) override {
    if (!IsUsual(options)) return db_->Get(options, family, key, value);
    Handle<::rocksdb::ColumnFamilyHandle> of{family};
    Handle<const ::rocksdb::Snapshot> at{options.snapshot};
    ds_rocksdb_read read;
    char* error = nullptr;
    switch (ds_rocksdb_try_get(reads_, &of, options.snapshot ? &at : nullptr, Sequence(options.snapshot), key.data(),
                               key.size(), &read,
                               &error)) {
      case DS_ROCKSDB_FOUND:
        value->PinSelf(::rocksdb::Slice(read.value, read.value_len));
        std::free(read.value);
        return ::rocksdb::Status::OK();
      case DS_ROCKSDB_ABSENT:
        return ::rocksdb::Status::NotFound();
      case DS_ROCKSDB_LOCAL: {
        ::rocksdb::Status status = db_->Get(options, family, key, value);
        ds_rocksdb_was_local(reads_, &read, key.data(), key.size(), status.ok() ? value->size() : 0);
        return status;
      }
      default:
        // RocksDB says in its own form what is wrong.
        std::free(error);
        return db_->Get(options, family, key, value);
    }
  }

  using ::rocksdb::StackableDB::MultiGet;
  std::vector<::rocksdb::Status> MultiGet(const ::rocksdb::ReadOptions& options,
                                          const std::vector<::rocksdb::ColumnFamilyHandle*>& families,
                                          const std::vector<::rocksdb::Slice>& keys,
                                          std::vector<std::string>* values) override {
    bool is_one = !keys.empty();
    for (::rocksdb::ColumnFamilyHandle* family : families) is_one = is_one && family == families[0];
    std::vector<char*> found;
    std::vector<size_t> lens;
    if (!is_one || !TryMany(options, families[0], keys.size(), keys.data(), &found, &lens))
      return db_->MultiGet(options, families, keys, values);
    std::vector<::rocksdb::Status> statuses(keys.size());
    values->assign(keys.size(), std::string());
    for (size_t i = 0; i < keys.size(); i++) {
      if (found[i] == nullptr) {
        statuses[i] = ::rocksdb::Status::NotFound();
      } else {
        (*values)[i].assign(found[i], lens[i]);
        std::free(found[i]);
      }
    }
    return statuses;
  }

  void MultiGet(const ::rocksdb::ReadOptions& options, ::rocksdb::ColumnFamilyHandle* family, const size_t count,
                const ::rocksdb::Slice* keys, ::rocksdb::PinnableSlice* values, ::rocksdb::Status* statuses,
                const bool sorted_input) override {
    std::vector<char*> found;
    std::vector<size_t> lens;
    if (!TryMany(options, family, count, keys, &found, &lens)) {
      db_->MultiGet(options, family, count, keys, values, statuses, sorted_input);
      return;
    }
    for (size_t i = 0; i < count; i++) {
      if (found[i] == nullptr) {
        statuses[i] = ::rocksdb::Status::NotFound();
      } else {
        values[i].PinSelf(::rocksdb::Slice(found[i], lens[i]));
        statuses[i] = ::rocksdb::Status::OK();
        std::free(found[i]);
      }
    }
  }

  ::rocksdb::Status Close() override {
    ds_rocksdb_unwrap(reads_);
    reads_ = nullptr;
    return db_->Close();
  }

  // How reads were made.
  ds_rocksdb_counters Counters() const {
    ds_rocksdb_counters counters = {};
    if (reads_ != nullptr) ds_rocksdb_get_counters(reads_, &counters);
    return counters;
  }

 private:
  // As the C interface has its handles in all versions: a pointer is the first of what they are.
  template <typename T>
  struct Handle {
    T* rep;
    void* rest[8] = {};
  };

  explicit Database(::rocksdb::DB* db) : StackableDB(db), handle_{db} {}

  static uint64_t Sequence(const ::rocksdb::Snapshot* snapshot) { return snapshot ? snapshot->GetSequenceNumber() : 0; }

  // Whether a read is made at the server as RocksDB would make it.
  bool IsUsual(const ::rocksdb::ReadOptions& options) const {
    return reads_ != nullptr && options.read_tier == ::rocksdb::kReadAllTier && options.timestamp == nullptr &&
           options.deadline.count() == 0 && options.io_timeout.count() == 0 && !options.ignore_range_deletions &&
           options.value_size_soft_limit == std::numeric_limits<uint64_t>::max();
  }

  bool TryMany(const ::rocksdb::ReadOptions& options, ::rocksdb::ColumnFamilyHandle* family, size_t count,
               const ::rocksdb::Slice* keys, std::vector<char*>* found, std::vector<size_t>* lens) {
    if (!IsUsual(options)) return false;
    std::vector<const char*> at(count);
    std::vector<size_t> key_lens(count);
    for (size_t i = 0; i < count; i++) {
      at[i] = keys[i].data();
      key_lens[i] = keys[i].size();
    }
    found->assign(count, nullptr);
    lens->assign(count, 0);
    Handle<::rocksdb::ColumnFamilyHandle> of{family};
    // As RocksDB reads them: all at one moment.
    std::unique_ptr<::rocksdb::ManagedSnapshot> now;
    if (options.snapshot == nullptr) now.reset(new ::rocksdb::ManagedSnapshot(db_));
    const ::rocksdb::Snapshot* snapshot = now ? now->snapshot() : options.snapshot;
    Handle<const ::rocksdb::Snapshot> handle{snapshot};
    char* error = nullptr;
    int done = ds_rocksdb_multi_get(reads_, &of, &handle, Sequence(snapshot), count, at.data(), key_lens.data(), found->data(),
                                    lens->data(), &error);
    std::free(error);
    return done == 0;
  }

  Handle<::rocksdb::DB> handle_;
  ds_rocksdb* reads_ = nullptr;
};

// As rocksdb::DB::Open, with reads at the server. It fails, too, if the server cannot be used.
inline ::rocksdb::Status Open(const ::rocksdb::Options& options, const std::string& name, const Server& server,
                              ::rocksdb::DB** made) {
  ::rocksdb::DB* db = nullptr;
  ::rocksdb::Status status = ::rocksdb::DB::Open(options, name, &db);
  return status.ok() ? Database::Over(db, server, made) : status;
}

// The same with column families.
inline ::rocksdb::Status Open(const ::rocksdb::DBOptions& options, const std::string& name, const Server& server,
                              const std::vector<::rocksdb::ColumnFamilyDescriptor>& descriptors,
                              std::vector<::rocksdb::ColumnFamilyHandle*>* families, ::rocksdb::DB** made) {
  ::rocksdb::DB* db = nullptr;
  ::rocksdb::Status status = ::rocksdb::DB::Open(options, name, descriptors, families, &db);
  return status.ok() ? Database::Over(db, server, made, families) : status;
}

}  // namespace rocksdb
}  // namespace diskside
#endif
