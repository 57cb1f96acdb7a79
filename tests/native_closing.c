/*
** Closes connections in the middle of everything, while the library has statements prepared on them.
**
**     cc native_closing.c -lsqlite3 && valgrind ./a.out ml_jobs.so shop.db
*/
#include <sqlite3.h>
#include <stdio.h>

static const char *const scripts[] = {
  "SELECT ml_submit('noop', 'x', NULL)",
  "BEGIN; SELECT ml_submit('noop', 'lost', NULL)",
  "BEGIN; INSERT INTO ML_JOBS (kind) VALUES ('lost')",
  "INSERT INTO ML_JOBS (kind) VALUES ('noop'); CREATE TABLE a (b); VACUUM; SELECT ml_submit('noop', 'x', NULL)",
  "SELECT count(*) FROM ML_JOBS; DROP TABLE a",
};
#define SCRIPTS ((int)(sizeof(scripts)/sizeof(scripts[0])))

static void run(sqlite3 *db, const char *sql){
  char *problem = 0;
  if( sqlite3_exec(db, sql, 0, 0, &problem)!=SQLITE_OK ) printf("%s: %s\n", sql, problem);
  sqlite3_free(problem);
}

static sqlite3 *open_loaded(char **words){
  sqlite3 *db = 0;
  char *problem = 0;
  sqlite3_open(words[2], &db);
  sqlite3_enable_load_extension(db, 1);
  if( sqlite3_load_extension(db, words[1], 0, &problem)!=SQLITE_OK ) puts(problem);
  run(db, "SELECT ml_init()");
  return db;
}

int main(int count, char **words){
  sqlite3_stmt *stmt = 0;
  sqlite3 *db;
  int each;
  if( count!=3 ) return 2;
  for(each=0; each<SCRIPTS; each++){
    db = open_loaded(words);
    run(db, scripts[each]);
    if( sqlite3_close(db)!=SQLITE_OK ) printf("cannot close after: %s\n", scripts[each]);
  }
  /* The module and its functions are replaced while the table is connected. */
  db = open_loaded(words);
  run(db, "INSERT INTO ML_JOBS (kind) VALUES ('noop')");
  sqlite3_load_extension(db, words[1], 0, 0);
  run(db, "INSERT INTO ML_JOBS (kind) VALUES ('noop')");
  sqlite3_close(db);
  /* A connection that is closed while a read of ML_JOBS is on its way lives on until that has ended. */
  db = open_loaded(words);
  sqlite3_prepare_v2(db, "SELECT * FROM ML_JOBS", -1, &stmt, 0);
  sqlite3_step(stmt);
  if( sqlite3_close(db)!=SQLITE_BUSY ) puts("closed under a running statement");
  run(db, "INSERT INTO ML_JOBS (kind) VALUES ('noop')");
  sqlite3_close_v2(db);
  sqlite3_step(stmt);
  sqlite3_finalize(stmt);
  puts("done");
  return 0;
}
