set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'tokens.svg'
set title 'Tokens a second over the bandwidth of each link (measured)'
set xlabel 'rate'
set ylabel 'tokens/s'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
set xtics ('unshaped' 30000, '1gbit' 1000, '100mbit' 100, '20mbit' 20)
set yrange [0:*]
set xrange [13.3333:45000]
plot 'tokens.dat' index 0 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 4 linecolor rgb '#D55E00' title 'DDP', \
  'tokens.dat' index 1 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 5 linecolor rgb '#0072B2' title 'DDP, fp16 hook', \
  'tokens.dat' index 2 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 6 linecolor rgb '#009E73' title 'DDP, PowerSGD hook rank 32', \
  'tokens.dat' index 3 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 7 linecolor rgb '#CC79A7' title 'laconic, raw', \
  'tokens.dat' index 4 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 8 linecolor rgb '#E69F00' title 'laconic, 4 bits', \
  'tokens.dat' index 5 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 9 linecolor rgb '#56B4E9' title 'laconic, PowerSGD rank 32, 8 bits', \
  'tokens.dat' index 6 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 10 linecolor rgb '#7F7F7F' title 'laconic, compressed Adam, sign', \
  'tokens.dat' index 7 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 11 linecolor rgb '#000000' title 'laconic, 4 bits, bypass auto'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'tokens.png'
replot
