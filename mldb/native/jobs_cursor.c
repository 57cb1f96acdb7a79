/*
** jobs_cursor.c: reads ML_JOBS on the host's own connection, so it shows what their transaction sees.
**
** The highest id is fixed when a read begins: a job that is added meanwhile does not appear, and each shows once. Jobs of
** a status are picked through its index in chunks of ids and then read; all others come from one statement.
*/
#include <string.h>

#include "ml_jobs.h"
#include "ml_sql.h"

SQLITE_EXTENSION_INIT3

#define FIRST_CHUNK 64
#define LARGEST_CHUNK 2048
#define LARGEST_ID 0x7fffffffffffffffLL

const char *const job_statuses[] = {JOB_STATUSES};

typedef struct Cursor {
  sqlite3_vtab_cursor base;
  Query rows;              /* the statement that gives the rows */
  Fault fault;
  sqlite3_int64 first;     /* the range of ids that is still to be read */
  sqlite3_int64 last;
  sqlite3_int64 left;      /* rows that a LIMIT still lets through */
  sqlite3_value *kind;     /* NULL for all */
  sqlite3_value *target;
  char *statuses;          /* a JSON array; NULL for all */
  int is_down;             /* highest id first */
  int chunk;               /* how many ids to pick next */
  int has_more;            /* ids may be left to pick */
  int has_row;
} Cursor;

static JobsTable *table_of(Cursor *cursor){
  return (JobsTable*)cursor->base.pVtab;
}

/* Lets go of everything that a read holds. */
static void cursor_reset(Cursor *cursor){
  query_close(&cursor->rows);
  sqlite3_value_free(cursor->kind);
  sqlite3_value_free(cursor->target);
  sqlite3_free(cursor->statuses);
  fault_clear(&cursor->fault);
  cursor->kind = cursor->target = 0;
  cursor->statuses = 0;
  cursor->has_row = cursor->has_more = 0;
}

int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **made){
  Cursor *cursor = sqlite3_malloc(sizeof(*cursor));
  if( cursor==0 ) return SQLITE_NOMEM;
  memset(cursor, 0, sizeof(*cursor));
  cursor->rows.fault = &cursor->fault;
  cursor->fault.surface = ((JobsTable*)table)->surface;
  *made = &cursor->base;
  return SQLITE_OK;
}

int cursor_close(sqlite3_vtab_cursor *base){
  cursor_reset((Cursor*)base);
  sqlite3_free(base);
  return SQLITE_OK;
}

/* Narrows the range of ids by a number, exactly; gives 0 when no id can match. */
static int narrow(Cursor *cursor, char word, sqlite3_value *value){
  sqlite3_int64 low, high;  /* the whole numbers around it */
  if( sqlite3_value_type(value)==SQLITE_INTEGER ){
    low = sqlite3_value_int64(value);
    if( low<-1 ) low = -1;
    high = low;
  }else{
    double number = sqlite3_value_double(value);
    if( number!=number ) return 0;
    if( number>=9223372036854775807.0 ){
      low = high = LARGEST_ID;
    }else{
      if( number<-1.0 ) number = -1.0;
      low = (sqlite3_int64)number;
      if( (double)low>number ) low--;
      high = (double)low<number ? low+1 : low;
    }
  }
  switch( word ){
    case PLAN_ABOVE:
      if( low==LARGEST_ID ) return 0;
      if( low+1>cursor->first ) cursor->first = low+1;
      return 1;
    case PLAN_BELOW:
      if( high-1<cursor->last ) cursor->last = high-1;
      return 1;
    case PLAN_FROM:
      if( high>cursor->first ) cursor->first = high;
      return 1;
    case PLAN_TO:
      if( low<cursor->last ) cursor->last = low;
      return 1;
    default:
      if( high>cursor->first ) cursor->first = high;
      if( low<cursor->last ) cursor->last = low;
      return 1;
  }
}

static void add_status(sqlite3_str *list, sqlite3_value *value){
  int each;
  const char *text;
  if( sqlite3_value_type(value)!=SQLITE_TEXT ) return;
  text = (const char*)sqlite3_value_text(value);
  for(each=0; text && job_statuses[each]; each++){
    if( strcmp(job_statuses[each], text)==0 ){
      sqlite3_str_appendf(list, "%s\"%s\"", sqlite3_str_length(list) ? "," : "[", text);
    }
  }
}

/* Notes the statuses that are asked for; gives 0 when none of them exists. */
static int want_statuses(Cursor *cursor, char word, sqlite3_value *value){
  sqlite3_str *list = sqlite3_str_new(0);
  sqlite3_value *each = 0;
  int code, found;
  if( word==PLAN_STATUS ){
    add_status(list, value);
  }else{
    for(code=sqlite3_vtab_in_first(value, &each); code==SQLITE_OK && each; code=sqlite3_vtab_in_next(value, &each)){
      add_status(list, each);
    }
    if( code!=SQLITE_OK && code!=SQLITE_DONE ) fault_of(&cursor->fault, table_of(cursor)->surface->db, code);
  }
  found = sqlite3_str_length(list)>0;
  sqlite3_str_appendall(list, found ? "]" : "[]");
  cursor->statuses = sqlite3_str_finish(list);
  if( cursor->statuses==0 ) fault_of(&cursor->fault, table_of(cursor)->surface->db, SQLITE_NOMEM);
  return found;
}

static void want_text(Cursor *cursor, sqlite3_value **place, sqlite3_value *value){
  *place = sqlite3_value_dup(value);
  if( *place==0 ) fault_of(&cursor->fault, table_of(cursor)->surface->db, SQLITE_NOMEM);
}

/* Opens a statement that gives rows, with the filters that all of them have. */
static void open_rows(Cursor *cursor, const char *sql){
  query_open(&cursor->rows, table_of(cursor)->surface->db, sql, &cursor->fault);
  query_value(&cursor->rows, ":kind", cursor->kind);
  query_value(&cursor->rows, ":target_name", cursor->target);
}

/* Picks the next ids of the statuses and opens the statement that gives their rows. */
static void pick(Cursor *cursor){
  sqlite3 *db = table_of(cursor)->surface->db;
  int count = cursor->left<cursor->chunk ? (int)cursor->left : cursor->chunk, found = 0;
  sqlite3_str *ids = sqlite3_str_new(db);
  sqlite3_int64 edge = 0;
  Query query;
  char *list;
  query_open(&query, db, cursor->is_down ? SQL_pick_jobs_down : SQL_pick_jobs_up, &cursor->fault);
  query_text(&query, ":statuses", cursor->statuses);
  query_int(&query, ":first", cursor->first);
  query_int(&query, ":last", cursor->last);
  query_int(&query, ":count", count);
  while( query_step(&query) ){
    edge = sqlite3_column_int64(query.stmt, 0);
    sqlite3_str_appendf(ids, "%s%lld", found++ ? "," : "[", edge);
  }
  query_close(&query);
  sqlite3_str_appendall(ids, found ? "]" : "[]");
  list = sqlite3_str_finish(ids);
  if( list==0 ) fault_of(&cursor->fault, db, SQLITE_NOMEM);
  open_rows(cursor, cursor->is_down ? SQL_list_picked_jobs_down : SQL_list_picked_jobs);
  query_text(&cursor->rows, ":ids", list);
  sqlite3_free(list);
  cursor->has_more = found==count;
  if( cursor->is_down ) cursor->last = edge-1; else cursor->first = edge+1;
  cursor->chunk = cursor->chunk*2<LARGEST_CHUNK ? cursor->chunk*2 : LARGEST_CHUNK;
}

/* Goes to the next row, if there is one. */
static int cursor_step(Cursor *cursor){
  cursor->has_row = 0;
  for(;;){
    if( cursor->left>0 && cursor->rows.stmt && query_step(&cursor->rows) ){
      cursor->has_row = 1;
      cursor->left--;
      break;
    }
    query_close(&cursor->rows);
    if( !cursor->has_more || cursor->left<=0 || cursor->fault.code!=SQLITE_OK ) break;
    pick(cursor);
  }
  return table_fault(cursor->base.pVtab, &cursor->fault);
}

int cursor_filter(sqlite3_vtab_cursor *base, int number, const char *plan, int count, sqlite3_value **values){
  Cursor *cursor = (Cursor*)base;
  Surface *surface = table_of(cursor)->surface;
  Fault *fault = &cursor->fault;
  int each, possible = 1;
  int exact = 1;  /* SQLite lets every row through that we give, so a LIMIT may count them here */
  (void)number;
  cursor_reset(cursor);
  if( require_ready(surface, fault)!=SQLITE_OK ) return table_fault(base->pVtab, fault);
  cursor->is_down = plan[0]==PLAN_DOWN;
  cursor->first = 0;
  cursor->last = query_number(surface->db, SQL_last_job_id, fault);
  cursor->left = LARGEST_ID;
  cursor->chunk = FIRST_CHUNK;
  for(each=0; each<count; each++){
    sqlite3_value *value = values[each];
    char word = plan[1+each];
    int type = word==PLAN_STATUSES ? SQLITE_TEXT : sqlite3_value_type(value);
    if( word==PLAN_LIMIT ){
      /* A negative LIMIT is none. */
      if( sqlite3_value_int64(value)>=0 ) cursor->left = sqlite3_value_int64(value);
    }else if( word==PLAN_STATUS || word==PLAN_STATUSES ){
      possible &= want_statuses(cursor, word, value);
    }else if( type==SQLITE_NULL ){
      possible = 0;  /* nothing compares with NULL */
    }else if( word==PLAN_KIND && type==SQLITE_TEXT ){
      want_text(cursor, &cursor->kind, value);
    }else if( word==PLAN_TARGET && type==SQLITE_TEXT ){
      want_text(cursor, &cursor->target, value);
    }else if( word!=PLAN_KIND && word!=PLAN_TARGET && (type==SQLITE_INTEGER || type==SQLITE_FLOAT) ){
      possible &= narrow(cursor, word, value);
    }else{
      exact = 0;  /* SQLite decides what another type equals */
    }
  }
  if( !exact ) cursor->left = LARGEST_ID;
  if( possible && cursor->first<=cursor->last && fault->code==SQLITE_OK ){
    if( cursor->statuses ){
      cursor->has_more = 1;
    }else{
      open_rows(cursor, cursor->is_down ? SQL_list_jobs_down : plan[0]==PLAN_CHEAP ? SQL_scan_jobs_up : SQL_list_jobs_up);
      query_int(&cursor->rows, ":first", cursor->first);
      query_int(&cursor->rows, ":last", cursor->last);
      query_int(&cursor->rows, ":count", cursor->left);
    }
  }
  return cursor_step(cursor);
}

int cursor_next(sqlite3_vtab_cursor *base){
  return cursor_step((Cursor*)base);
}

int cursor_eof(sqlite3_vtab_cursor *base){
  return !((Cursor*)base)->has_row;
}

/* Gives a value of the job; nothing for a column that an UPDATE leaves alone. */
int cursor_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column){
  if( !sqlite3_vtab_nochange(context) ){
    sqlite3_result_value(context, sqlite3_column_value(((Cursor*)base)->rows.stmt, column));
  }
  return SQLITE_OK;
}

int cursor_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid){
  *rowid = sqlite3_column_int64(((Cursor*)base)->rows.stmt, JOB_ID);
  return SQLITE_OK;
}
