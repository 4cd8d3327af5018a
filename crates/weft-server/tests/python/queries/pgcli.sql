SELECT 1;

show time zone;

set time zone "Asia/Shanghai";

SELECT * FROM unnest(current_schemas(true));

SELECT  nspname
                FROM    pg_catalog.pg_namespace
                ORDER BY 1;

SELECT  n.nspname schema_name,
                        c.relname table_name
                FROM    pg_catalog.pg_class c
                        LEFT JOIN pg_catalog.pg_namespace n
                            ON n.oid = c.relnamespace
                WHERE   c.relkind = ANY('{r,p,f}')
                ORDER BY 1,2;

SELECT  nsp.nspname schema_name,
                                cls.relname table_name,
                                att.attname column_name,
                                att.atttypid::regtype::text type_name,
                                att.atthasdef AS has_default,
                                pg_catalog.pg_get_expr(def.adbin, def.adrelid, true) as default
                        FROM    pg_catalog.pg_attribute att
                                INNER JOIN pg_catalog.pg_class cls
                                    ON att.attrelid = cls.oid
                                INNER JOIN pg_catalog.pg_namespace nsp
                                    ON cls.relnamespace = nsp.oid
                                LEFT OUTER JOIN pg_attrdef def
                                    ON def.adrelid = att.attrelid
                                    AND def.adnum = att.attnum
                        WHERE   cls.relkind = ANY('{r,p,f}')
                                AND NOT att.attisdropped
                                AND att.attnum  > 0
                        ORDER BY 1, 2, att.attnum;

SELECT  n.nspname schema_name,
                        c.relname table_name
                FROM    pg_catalog.pg_class c
                        LEFT JOIN pg_catalog.pg_namespace n
                            ON n.oid = c.relnamespace
                WHERE   c.relkind = ANY('{v,m}')
                ORDER BY 1,2;

SELECT  nsp.nspname schema_name,
                                cls.relname table_name,
                                att.attname column_name,
                                att.atttypid::regtype::text type_name,
                                att.atthasdef AS has_default,
                                pg_catalog.pg_get_expr(def.adbin, def.adrelid, true) as default
                        FROM    pg_catalog.pg_attribute att
                                INNER JOIN pg_catalog.pg_class cls
                                    ON att.attrelid = cls.oid
                                INNER JOIN pg_catalog.pg_namespace nsp
                                    ON cls.relnamespace = nsp.oid
                                LEFT OUTER JOIN pg_attrdef def
                                    ON def.adrelid = att.attrelid
                                    AND def.adnum = att.attnum
                        WHERE   cls.relkind = ANY('{v,m}')
                                AND NOT att.attisdropped
                                AND att.attnum  > 0
                        ORDER BY 1, 2, att.attnum;

SELECT n.nspname schema_name,
                                   t.typname type_name
                            FROM   pg_catalog.pg_type t
                                   INNER JOIN pg_catalog.pg_namespace n
                                      ON n.oid = t.typnamespace
                            WHERE ( t.typrelid = 0  -- non-composite types
                                    OR (  -- composite type, but not a table
                                          SELECT c.relkind = 'c'
                                          FROM pg_catalog.pg_class c
                                          WHERE c.oid = t.typrelid
                                        )
                                  )
                                  AND NOT EXISTS( -- ignore array types
                                        SELECT  1
                                        FROM    pg_catalog.pg_type el
                                        WHERE   el.oid = t.typelem AND el.typarray = t.oid
                                      )
                                  AND n.nspname <> 'pg_catalog'
                                  AND n.nspname <> 'information_schema'
                            ORDER BY 1, 2;

SELECT d.datname
                FROM pg_catalog.pg_database d
                ORDER BY 1;
