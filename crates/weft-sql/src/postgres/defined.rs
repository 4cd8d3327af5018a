//! The columns of the tables of `pg_catalog`, as PostgreSQL 14 has them. Columns of internal use that no client asks for are
//! left out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::postgres::types::POSTGRES_TYPE;
use crate::types::ZONE;

/// A table of the catalog.
pub(crate) struct Defined {
    pub(crate) name: &'static str,
    /// Names and types, a colon between.
    columns: &'static str,
}

macro_rules! define {
    ($($name:literal: $columns:literal;)*) => {
        /// The tables of the catalog.
        pub(crate) const DEFINED: &[Defined] = &[$(Defined { name: $name, columns: $columns },)*];
    };
}

define! {
    "pg_aggregate": "aggfnoid:regproc aggkind:char aggnumdirectargs:int2 aggtranstype:oid";
    "pg_am": "oid:oid amname:name amhandler:regproc amtype:char";
    "pg_amop": "oid:oid amopfamily:oid amoplefttype:oid amoprighttype:oid amopstrategy:int2 amoppurpose:char amopopr:oid \
        amopmethod:oid amopsortfamily:oid";
    "pg_amproc": "oid:oid amprocfamily:oid amproclefttype:oid amprocrighttype:oid amprocnum:int2 amproc:regproc";
    "pg_attrdef": "oid:oid adrelid:oid adnum:int2 adbin:text adsrc:text";
    "pg_attribute": "attrelid:oid attname:name atttypid:oid attstattarget:int4 attlen:int2 attnum:int2 attndims:int4 \
        attcacheoff:int4 atttypmod:int4 attbyval:bool attalign:char attstorage:char attcompression:char attnotnull:bool \
        atthasdef:bool atthasmissing:bool attidentity:char attgenerated:char attisdropped:bool attislocal:bool \
        attinhcount:int4 attcollation:oid attacl:text[] attoptions:text[] attfdwoptions:text[] attmissingval:text[]";
    "pg_auth_members": "roleid:oid member:oid grantor:oid admin_option:bool";
    "pg_authid": "oid:oid rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool rolcanlogin:bool \
        rolreplication:bool rolbypassrls:bool rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz";
    "pg_available_extensions": "name:name default_version:text installed_version:text comment:text";
    "pg_cast": "oid:oid castsource:oid casttarget:oid castfunc:oid castcontext:char castmethod:char";
    "pg_class": "oid:oid relname:name relnamespace:oid reltype:oid reloftype:oid relowner:oid relam:oid relfilenode:oid \
        reltablespace:oid relpages:int4 reltuples:float4 relallvisible:int4 reltoastrelid:oid relhasindex:bool \
        relisshared:bool relpersistence:char relkind:char relnatts:int2 relchecks:int2 relhasoids:bool relhasrules:bool \
        relhastriggers:bool relhassubclass:bool relrowsecurity:bool relforcerowsecurity:bool relispopulated:bool \
        relreplident:char relispartition:bool relrewrite:oid relfrozenxid:oid relminmxid:oid relacl:text[] \
        reloptions:text[] relpartbound:text";
    "pg_collation": "oid:oid collname:name collnamespace:oid collowner:oid collprovider:char collisdeterministic:bool \
        collencoding:int4 collcollate:name collctype:name collversion:text";
    "pg_constraint": "oid:oid conname:name connamespace:oid contype:char condeferrable:bool condeferred:bool \
        convalidated:bool conrelid:oid contypid:oid conindid:oid conparentid:oid confrelid:oid confupdtype:char \
        confdeltype:char confmatchtype:char conislocal:bool coninhcount:int4 connoinherit:bool conkey:int2[] \
        confkey:int2[] conpfeqop:oid[] conppeqop:oid[] conffeqop:oid[] conexclop:oid[] conbin:text consrc:text tableoid:oid";
    "pg_conversion": "oid:oid conname:name connamespace:oid conowner:oid conforencoding:int4 contoencoding:int4 \
        conproc:regproc condefault:bool";
    "pg_database": "oid:oid datname:name datdba:oid encoding:int4 datcollate:name datctype:name datistemplate:bool \
        datallowconn:bool datconnlimit:int4 datlastsysoid:oid datfrozenxid:oid datminmxid:oid dattablespace:oid \
        datacl:text[]";
    "pg_db_role_setting": "setdatabase:oid setrole:oid setconfig:text[]";
    "pg_default_acl": "oid:oid defaclrole:oid defaclnamespace:oid defaclobjtype:char defaclacl:text[]";
    "pg_depend": "classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid refobjsubid:int4 deptype:char";
    "pg_description": "objoid:oid classoid:oid objsubid:int4 description:text";
    "pg_enum": "oid:oid enumtypid:oid enumsortorder:float4 enumlabel:name";
    "pg_event_trigger": "oid:oid evtname:name evtevent:name evtowner:oid evtfoid:oid evtenabled:char evttags:text[]";
    "pg_extension": "oid:oid extname:name extowner:oid extnamespace:oid extrelocatable:bool extversion:text";
    "pg_foreign_data_wrapper": "oid:oid fdwname:name fdwowner:oid fdwhandler:oid fdwvalidator:oid fdwacl:text[] \
        fdwoptions:text[]";
    "pg_foreign_server": "oid:oid srvname:name srvowner:oid srvfdw:oid srvtype:text srvversion:text srvacl:text[] \
        srvoptions:text[]";
    "pg_foreign_table": "ftrelid:oid ftserver:oid ftoptions:text[]";
    "pg_get_keywords": "word:text catcode:char barelabel:bool catdesc:text baredesc:text";
    "pg_index": "indexrelid:oid indrelid:oid indnatts:int2 indnkeyatts:int2 indisunique:bool indisprimary:bool \
        indisexclusion:bool indimmediate:bool indisclustered:bool indisvalid:bool indcheckxmin:bool indisready:bool \
        indislive:bool indisreplident:bool indkey:int2vector indcollation:oidvector indclass:oidvector indoption:int2vector \
        indexprs:text indpred:text";
    "pg_indexes": "schemaname:name tablename:name indexname:name tablespace:name indexdef:text";
    "pg_inherits": "inhrelid:oid inhparent:oid inhseqno:int4 inhdetachpending:bool";
    "pg_language": "oid:oid lanname:name lanowner:oid lanispl:bool lanpltrusted:bool lanplcallfoid:oid \
        laninline:oid lanvalidator:oid lanacl:text[] tableoid:oid";
    "pg_largeobject_metadata": "oid:oid lomowner:oid lomacl:text[]";
    "pg_locks": "locktype:text database:oid relation:oid page:int4 tuple:int2 virtualxid:text transactionid:oid \
        classid:oid objid:oid objsubid:int2 virtualtransaction:text pid:int4 mode:text granted:bool fastpath:bool \
        waitstart:timestamptz";
    "pg_matviews": "schemaname:name matviewname:name matviewowner:name tablespace:name hasindexes:bool ispopulated:bool \
        definition:text";
    "pg_namespace": "oid:oid nspname:name nspowner:oid nspacl:text[]";
    "pg_opclass": "oid:oid opcmethod:oid opcname:name opcnamespace:oid opcowner:oid opcfamily:oid opcintype:oid \
        opcdefault:bool opckeytype:oid tableoid:oid";
    "pg_operator": "oid:oid oprname:name oprnamespace:oid oprowner:oid oprkind:char oprcanmerge:bool oprcanhash:bool \
        oprleft:oid oprright:oid oprresult:oid oprcom:oid oprnegate:oid oprcode:regproc";
    "pg_opfamily": "oid:oid opfmethod:oid opfname:name opfnamespace:oid opfowner:oid tableoid:oid";
    "pg_partitioned_table": "partrelid:oid partstrat:char partnatts:int2 partdefid:oid partattrs:int2[]";
    "pg_policies": "schemaname:name tablename:name policyname:name permissive:text roles:text[] cmd:text qual:text \
        with_check:text";
    "pg_policy": "oid:oid polname:name polrelid:oid polcmd:char polpermissive:bool polroles:oid[] polqual:text \
        polwithcheck:text";
    "pg_prepared_xacts": "transaction:oid gid:text prepared:timestamptz owner:name database:name";
    "pg_proc": "oid:oid proname:name pronamespace:oid proowner:oid prolang:oid procost:float4 prorows:float4 \
        provariadic:oid prokind:char prosecdef:bool proleakproof:bool proisstrict:bool proretset:bool provolatile:char \
        proparallel:char pronargs:int2 pronargdefaults:int2 prorettype:oid proargtypes:oid[] proallargtypes:oid[] \
        proargmodes:text[] proargnames:text[] proargdefaults:text prosrc:text probin:text proconfig:text[] \
        proacl:text[]";
    "pg_publication": "oid:oid pubname:name pubowner:oid puballtables:bool pubinsert:bool pubupdate:bool pubdelete:bool \
        pubtruncate:bool pubviaroot:bool";
    "pg_publication_rel": "oid:oid prpubid:oid prrelid:oid";
    "pg_publication_tables": "pubname:name schemaname:name tablename:name";
    "pg_range": "rngtypid:oid rngsubtype:oid rngmultitypid:oid rngcollation:oid rngsubopc:oid";
    "pg_replication_slots": "slot_name:name plugin:name slot_type:text datoid:oid database:name active:bool";
    "pg_rewrite": "oid:oid rulename:name ev_class:oid ev_type:char ev_enabled:char is_instead:bool ev_qual:text \
        ev_action:text tableoid:oid";
    "pg_roles": "oid:oid rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool rolcanlogin:bool \
        rolreplication:bool rolconnlimit:int4 rolpassword:text rolvaliduntil:timestamptz rolbypassrls:bool \
        rolconfig:text[]";
    "pg_rules": "schemaname:name tablename:name rulename:name definition:text";
    "pg_seclabel": "objoid:oid classoid:oid objsubid:int4 provider:text label:text";
    "pg_sequence": "seqrelid:oid seqtypid:oid seqstart:int8 seqincrement:int8 seqmax:int8 seqmin:int8 seqcache:int8 \
        seqcycle:bool";
    "pg_sequences": "schemaname:name sequencename:name sequenceowner:name data_type:text start_value:int8 min_value:int8 \
        max_value:int8 increment_by:int8 cycle:bool cache_size:int8 last_value:int8";
    "pg_settings": "name:text setting:text unit:text category:text short_desc:text extra_desc:text context:text \
        vartype:text source:text min_val:text max_val:text enumvals:text[] boot_val:text reset_val:text sourcefile:text \
        sourceline:int4 pending_restart:bool";
    "pg_shdepend": "dbid:oid classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid deptype:char";
    "pg_shdescription": "objoid:oid classoid:oid description:text";
    "pg_shseclabel": "objoid:oid classoid:oid provider:text label:text";
    "pg_stat_activity": "datid:oid datname:name pid:int4 leader_pid:int4 usesysid:oid usename:name application_name:text \
        client_addr:text client_hostname:text client_port:int4 backend_start:timestamptz xact_start:timestamptz \
        query_start:timestamptz state_change:timestamptz wait_event_type:text wait_event:text state:text backend_xid:oid \
        backend_xmin:oid query_id:int8 query:text backend_type:text";
    "pg_stat_database": "datid:oid datname:name numbackends:int4";
    "pg_stat_ssl": "pid:int4 ssl:bool version:text cipher:text bits:int4";
    "pg_stat_user_tables": "relid:oid schemaname:name relname:name n_live_tup:int8 n_dead_tup:int8";
    "pg_statistic_ext": "oid:oid stxrelid:oid stxname:name stxnamespace:oid stxowner:oid stxstattarget:int4 \
        stxkeys:int2[] stxkind:text[]";
    "pg_stats": "schemaname:name tablename:name attname:name null_frac:float4 avg_width:int4 n_distinct:float4";
    "pg_subscription": "oid:oid subdbid:oid subname:name subowner:oid subenabled:bool subbinary:bool substream:bool \
        subconninfo:text subslotname:name subsynccommit:text subpublications:text[]";
    "pg_tables": "schemaname:name tablename:name tableowner:name tablespace:name hasindexes:bool hasrules:bool \
        hastriggers:bool rowsecurity:bool";
    "pg_tablespace": "oid:oid spcname:name spcowner:oid spcacl:text[] spcoptions:text[]";
    "pg_timezone_names": "name:text abbrev:text utc_offset:text is_dst:bool";
    "pg_trigger": "oid:oid tgrelid:oid tgparentid:oid tgname:name tgfoid:oid tgtype:int2 tgenabled:char \
        tgisinternal:bool tgconstrrelid:oid tgconstrindid:oid tgconstraint:oid tgdeferrable:bool tginitdeferred:bool \
        tgnargs:int2 tgattr:int2[] tgqual:text tgoldtable:name tgnewtable:name \
        tableoid:oid";
    "pg_ts_config": "oid:oid cfgname:name cfgnamespace:oid cfgowner:oid cfgparser:oid";
    "pg_ts_dict": "oid:oid dictname:name dictnamespace:oid dictowner:oid dicttemplate:oid dictinitoption:text";
    "pg_ts_parser": "oid:oid prsname:name prsnamespace:oid";
    "pg_ts_template": "oid:oid tmplname:name tmplnamespace:oid";
    "pg_type": "oid:oid typname:name typnamespace:oid typowner:oid typlen:int2 typbyval:bool typtype:char \
        typcategory:char typispreferred:bool typisdefined:bool typdelim:char typrelid:oid typsubscript:regproc \
        typelem:oid typarray:oid typinput:regproc typoutput:regproc typreceive:regproc typsend:regproc \
        typmodin:regproc typmodout:regproc typanalyze:regproc typalign:char typstorage:char typnotnull:bool \
        typbasetype:oid typtypmod:int4 typndims:int4 typcollation:oid typdefaultbin:text typdefault:text typacl:text[]";
    "pg_user": "usename:name usesysid:oid usecreatedb:bool usesuper:bool userepl:bool usebypassrls:bool passwd:text \
        valuntil:timestamptz useconfig:text[]";
    "pg_user_mapping": "oid:oid umuser:oid umserver:oid umoptions:text[]";
    "pg_user_mappings": "umid:oid srvid:oid srvname:name umuser:oid usename:name umoptions:text[]";
    "pg_views": "schemaname:name viewname:name viewowner:name definition:text";
}

/// The definition of a table of the catalog.
pub(crate) fn defined(name: &str) -> Option<&'static Defined> {
    DEFINED.binary_search_by(|defined| defined.name.cmp(name)).ok().map(|number| &DEFINED[number])
}

/// True of the name of a column that is a list in each table of the catalog that has it.
pub(crate) fn is_list(column: &str) -> bool {
    let all = DEFINED.iter().flat_map(|table| table.columns.split_whitespace());
    let mut found =
        all.filter_map(|column| column.split_once(':')).filter(|(name, _)| *name == column);
    let is_list = |kind: &str| kind.ends_with("[]") || kind.ends_with("vector");
    found.next().is_some_and(|(_, kind)| is_list(kind)) && found.all(|(_, kind)| is_list(kind))
}

/// True of the name of a column of the catalog whose items PostgreSQL counts from 0 on.
pub(crate) fn is_vector(column: &str) -> bool {
    let all = DEFINED.iter().flat_map(|table| table.columns.split_whitespace());
    let mut found = all.filter_map(|column| column.split_once(':'));
    found.any(|(name, kind)| name == column && kind.ends_with("vector"))
}

impl Defined {
    /// Its columns.
    pub(crate) fn schema(&self) -> SchemaRef {
        let columns = self.columns.split_whitespace().filter_map(|column| column.split_once(':'));
        Arc::new(Schema::new(columns.map(|(name, kind)| field(name, kind)).collect::<Vec<_>>()))
    }
}

fn field(name: &str, kind: &str) -> Field {
    let named = |kind: &str| HashMap::from([(POSTGRES_TYPE.to_owned(), kind.to_owned())]);
    if let Some(item) = kind.strip_suffix("[]") {
        let item = field(Field::LIST_FIELD_DEFAULT_NAME, item);
        return Field::new(name, DataType::List(Arc::new(item)), true);
    }
    match kind {
        "int2vector" | "oidvector" => {
            let item = if kind == "oidvector" { "oid" } else { "int2" };
            let item = field(Field::LIST_FIELD_DEFAULT_NAME, item);
            Field::new(name, DataType::List(Arc::new(item)), true).with_metadata(named(kind))
        }
        "oid" => Field::new(name, DataType::Int64, true).with_metadata(named(kind)),
        "name" | "char" => Field::new(name, DataType::Utf8View, true).with_metadata(named(kind)),
        "bool" => Field::new(name, DataType::Boolean, true),
        "int2" => Field::new(name, DataType::Int16, true),
        "int4" => Field::new(name, DataType::Int32, true),
        "int8" => Field::new(name, DataType::Int64, true),
        "float4" => Field::new(name, DataType::Float32, true),
        "timestamptz" => {
            let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()));
            Field::new(name, zoned, true)
        }
        // Texts, and functions by their names.
        _ => Field::new(name, DataType::Utf8View, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_their_columns_have_known_types() {
        assert!(DEFINED.is_sorted_by(|left, right| left.name < right.name));
        let known = [
            "oid",
            "name",
            "char",
            "bool",
            "int2",
            "int4",
            "int8",
            "float4",
            "timestamptz",
            "text",
            "regproc",
            "int2vector",
            "oidvector",
        ];
        for table in DEFINED {
            for column in table.columns.split_whitespace() {
                let (_, kind) = column.split_once(':').expect("a name and a type");
                assert!(known.contains(&kind.trim_end_matches("[]")), "{column} of {}", table.name);
            }
        }
    }
}
