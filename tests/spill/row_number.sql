SELECT count(*), sum(n), sum(n * l_linenumber), max(l_comment)
FROM (SELECT row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS n, l_linenumber, l_comment
      FROM lineitem)
