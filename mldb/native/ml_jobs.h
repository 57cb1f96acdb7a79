/*
** ml_jobs.h: what the C files of the front end share. See ml_jobs.c for what it does.
*/
#ifndef ML_JOBS_H
#define ML_JOBS_H

#include <sqlite3ext.h>
#include <sys/types.h>

/* Statements that stay prepared for a connection, because preparing one costs more than running it. */
#define KEPT_STATEMENTS 16
typedef struct Kept {
  const char *sql[KEPT_STATEMENTS];
  sqlite3_stmt *stmt[KEPT_STATEMENTS];  /* NULL while it is in use, and where there is none */
} Kept;

/* What stands behind the functions and ML_JOBS of one host connection. */
typedef struct Surface {
  sqlite3 *db;       /* the host's */
  sqlite3 *writer;   /* ours, beside it; opened by the first write that needs it */
  pid_t pid;         /* of the process that loaded us */
  int holders;       /* functions, modules and tables that point here */
  int tables;        /* how often ML_JOBS is connected; 0 or 1 but for a moment */
  int is_ready;      /* the schema was looked at and is ours */
  Kept host_kept;    /* only while ML_JOBS is connected: SQLite disconnects it before it closes the host's connection */
  Kept writer_kept;
} Surface;

/* What went wrong in a call. The first fault stays; whatever follows does nothing. */
typedef struct Fault {
  int code;          /* SQLITE_OK while nothing did */
  char *words;       /* for the user, from sqlite3_malloc; NULL when memory ran out */
  Surface *surface;  /* whose statements the call may keep prepared; NULL for none */
} Fault;

/* fault.c: gives the code, so that a caller can return it. */
int fault_say(Fault *fault, int code, const char *format, ...);
int fault_of(Fault *fault, sqlite3 *db, int code);
void fault_clear(Fault *fault);
void fault_report(Fault *fault, sqlite3_context *context);

/* One run of a statement of sql/: open, bind by name, step, close. Everything is quiet after a fault. */
typedef struct Query {
  sqlite3 *db;
  const char *sql;
  sqlite3_stmt *stmt;
  Fault *fault;
} Query;

/* query.c */
void query_open(Query *query, sqlite3 *db, const char *sql, Fault *fault);
void query_int(Query *query, const char *name, sqlite3_int64 value);
void query_text(Query *query, const char *name, const char *value);
void query_value(Query *query, const char *name, sqlite3_value *value);
int query_step(Query *query);
int query_close(Query *query);
void kept_drop(Kept *kept);
int query_run(sqlite3 *db, const char *sql, Fault *fault);
sqlite3_int64 query_number(sqlite3 *db, const char *sql, Fault *fault);
char *query_copy(Query *query, int column);
char *shown(sqlite3 *db, sqlite3_value *value, Fault *fault);

/* beside.c: connections of ours beside the host's. */
const char *main_file(sqlite3 *host, Fault *fault);
sqlite3 *open_beside(sqlite3 *host, int flags, Fault *fault);
sqlite3 *open_reader(sqlite3 *host, Fault *fault);
void require_wal(sqlite3 *db, Fault *fault);
int is_wal(sqlite3 *db, Fault *fault);

/* surface.c: what must hold before a call, and where it writes. */
typedef struct Writing {
  Surface *surface;
  sqlite3 *db;          /* where to write */
  sqlite3_int64 rowid;  /* the host's last_insert_rowid() */
  int began;            /* we began a transaction and end it */
} Writing;

int is_inside(Surface *surface);
int is_barred(sqlite3 *db, Fault *fault);
int require_shared(sqlite3 *db, Fault *fault);
int require_ready(Surface *surface, Fault *fault);
int require_writable(Surface *surface, Fault *fault);
void writing_begin(Writing *writing, Surface *surface, int several, Fault *fault);
int writing_end(Writing *writing, Fault *fault);

/* schema.c: the tables of the queue. */
int schema_check(sqlite3 *db, Fault *fault);
int schema_prepare(Surface *surface, Fault *fault);
sqlite3 *schema_blank(int steps, Fault *fault);

/* jobs.c: what a user does to jobs, on a connection that may write. */
typedef struct Submission {
  sqlite3_value *kind;
  sqlite3_value *target;
  sqlite3_value *spec;
  sqlite3_value *options;  /* NULL for none */
} Submission;

sqlite3_int64 now_ms(void);
sqlite3_int64 job_submit(sqlite3 *db, const Submission *job, Fault *fault);
int job_cancel(sqlite3 *db, sqlite3_int64 id, Fault *fault);
int job_retry(sqlite3 *db, sqlite3_int64 id, sqlite3_int64 *made, Fault *fault);
int job_delete(sqlite3 *db, const char *ids, Fault *fault);
int job_old(sqlite3 *db, sqlite3_int64 before, sqlite3_int64 after, int count, char **ids, sqlite3_int64 *last,
            Fault *fault);

/* sandbox.c: whether the queries in a spec may run. */
int check_queries(Surface *surface, const Submission *job, Fault *fault);

/* wait.c */
char *job_wait(Surface *surface, sqlite3_int64 id, double seconds, Fault *fault);

/* functions.c and jobs_table.c: put themselves on the host's connection. */
int functions_install(Surface *surface);
int jobs_table_install(Surface *surface);
Surface *surface_hold(Surface *surface);
void surface_release(void *surface);

/* jobs_cursor.c: reading ML_JOBS. */
extern const char *const job_statuses[];
int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **made);
int cursor_close(sqlite3_vtab_cursor *cursor);
int cursor_filter(sqlite3_vtab_cursor *cursor, int number, const char *plan, int count, sqlite3_value **values);
int cursor_next(sqlite3_vtab_cursor *cursor);
int cursor_eof(sqlite3_vtab_cursor *cursor);
int cursor_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column);
int cursor_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *rowid);

/* ML_JOBS on one connection. */
typedef struct JobsTable {
  sqlite3_vtab base;
  Surface *surface;
  char **names;  /* of its columns, from the view ml_job_list */
  int columns;
} JobsTable;

int table_fault(sqlite3_vtab *table, Fault *fault);

/* The columns of ML_JOBS that the code knows by their place. */
enum { JOB_ID = 0, JOB_KIND = 1, JOB_TARGET = 2, JOB_STATUS = 3, JOB_SPEC = 9, JOB_DURATION = 17, JOB_MESSAGE = 18 };

/* The words of a plan of ML_JOBS: one letter per value that xFilter gets, behind one for the order. */
enum {
  PLAN_UP = 'u',
  PLAN_DOWN = 'd',
  PLAN_CHEAP = 'c',  /* up, and without the columns that cost something to make */
  PLAN_ID = 'i',
  PLAN_ABOVE = '>',
  PLAN_FROM = 'f',
  PLAN_BELOW = '<',
  PLAN_TO = 't',
  PLAN_STATUS = 's',
  PLAN_STATUSES = 'S',
  PLAN_KIND = 'k',
  PLAN_TARGET = 'n',
  PLAN_LIMIT = 'l'
};

#endif
