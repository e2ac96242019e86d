// Uses a database as any program does, but for its opening. What it says is read by cpp.rs.
#include <diskside/rocksdb.hpp>

#include <cstdio>
#include <cstdlib>

#include <rocksdb/cache.h>
#include <rocksdb/table.h>

static void Check(bool is_right, const std::string& what) {
  if (is_right) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::exit(1);
}

static std::string Key(int i) {
  char key[32];
  std::snprintf(key, sizeof key, "key%06d", i);
  return key;
}

static rocksdb::Options Options() {
  rocksdb::Options options;
  options.create_if_missing = options.create_missing_column_families = true;
  options.level0_file_num_compaction_trigger = 3;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(1024);
  table.cache_index_and_filter_blocks = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

int main(int, char** arguments) {
  const std::string path = arguments[1];
  diskside::rocksdb::Server server;
  server.url = arguments[2];
  server.values_bytes = 0;
  server.always = arguments[3] == std::string("always");

  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors = {{rocksdb::kDefaultColumnFamilyName, Options()},
                                                              {"users", Options()}};
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  diskside::rocksdb::Server nowhere = server;
  nowhere.url = "diskside://127.0.0.1:1/data/db";
  rocksdb::Status status = diskside::rocksdb::Open(Options(), path, nowhere, &db);
  Check(status.IsIOError(), "a server that is not there is told: " + status.ToString());
  status = diskside::rocksdb::Open(rocksdb::DBOptions(Options()), path, server, descriptors, &families, &db);
  Check(status.ok(), status.ToString());

  const rocksdb::Snapshot* old = nullptr;
  for (int version = 1; version <= 2; version++) {
    for (int i = 0; i < 2000; i += version)
      Check(db->Put({}, families[i % 2], Key(i), Key(i) + " " + std::to_string(version)).ok(), "put");
    if (version == 1) old = db->GetSnapshot();
    for (rocksdb::ColumnFamilyHandle* family : families) Check(db->Flush({}, family).ok(), "flush");
  }
  Check(db->Delete({}, families[0], Key(4)).ok() && db->Flush({}, families[0]).ok(), "delete");

  rocksdb::ReadOptions of_old;
  of_old.snapshot = old;
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < 2000; i += 37) {
      std::string value, before;
      status = db->Get({}, families[i % 2], Key(i), &value);
      Check(status.ok() && value == Key(i) + (i % 2 ? " 1" : " 2"), Key(i) + ": " + status.ToString() + value);
      status = db->Get(of_old, families[i % 2], Key(i), &before);
      Check(status.ok() && before == Key(i) + " 1", "of a snapshot, " + Key(i) + ": " + status.ToString() + before);
      Check(db->Get({}, families[1 - i % 2], Key(i), &value).IsNotFound(), "in the other family");
    }
    std::string value;
    Check(db->Get({}, Key(4), &value).IsNotFound(), "deleted");
    Check(db->Get(of_old, Key(4), &value).ok() && value == Key(4) + " 1", "deleted after the snapshot");

    std::vector<std::string> names = {Key(2), Key(3), Key(4), Key(100)};
    std::vector<rocksdb::Slice> keys(names.begin(), names.end());
    std::vector<rocksdb::PinnableSlice> values(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db->MultiGet({}, families[0], keys.size(), keys.data(), values.data(), statuses.data());
    Check(statuses[0].ok() && values[0] == Key(2) + " 2" && statuses[1].IsNotFound() && statuses[2].IsNotFound() &&
              statuses[3].ok() && values[3] == Key(100) + " 2", "several keys");
    std::vector<std::string> texts;
    statuses = db->MultiGet(of_old, std::vector<rocksdb::ColumnFamilyHandle*>(4, families[0]), keys, &texts);
    Check(statuses[0].ok() && texts[0] == Key(2) + " 1" && statuses[1].IsNotFound() && texts[2] == Key(4) + " 1",
          "several keys of a snapshot");
  }
  // Options that change what is read are RocksDB's business.
  rocksdb::ReadOptions cached;
  cached.read_tier = rocksdb::kBlockCacheTier;
  std::string value;
  Check(db->Get(cached, Key(800), &value).IsIncomplete(), "only from the cache");

  struct ds_rocksdb_counters counters = static_cast<diskside::rocksdb::Database*>(db)->Counters();
  std::printf("%llu at the server, %llu plain, %llu fallbacks\n", (unsigned long long)counters.at_server,
              (unsigned long long)counters.plain, (unsigned long long)counters.fallbacks);
  db->ReleaseSnapshot(old);
  for (rocksdb::ColumnFamilyHandle* family : families) db->DestroyColumnFamilyHandle(family);
  Check(db->Close().ok(), "close");
  delete db;
}
